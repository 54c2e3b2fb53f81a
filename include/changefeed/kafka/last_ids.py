"""The event ids of the last records of topics."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.topics import partition_counts
from changefeed.records.block import ID_HEADER
from changefeed.records.event_id import EventId

_LAST = 10
"""How many offsets at the end of a partition are read; some of them may be control records of transactions."""


def last_ids(connection: KafkaConnection, topics: Iterable[str]) -> dict[str, EventId]:
    """The event id of one of the last records of each topic; topics that do not exist or have no event ids are left
    out.

    Raises BrokerUnavailableError, TopicError.
    """
    counts = partition_counts(connection, topics)
    partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    if not partitions:
        return {}
    purpose = "to read the last records of the pipeline's topics"
    with partition_reader(connection, partitions, purpose) as look:
        first, ends = look.first_offsets(), look.last_stable_offsets()
    start = {each: max(first[each], ends[each] - _LAST) for each in partitions if ends[each] > first[each]}
    found: dict[str, EventId] = {}
    if start:
        with partition_reader(connection, list(start), purpose, start=start) as reader:
            ends = {each: ends[each] for each in start}
            for record in reader.to_end(ends, timeout_seconds=6 * connection.timeout_seconds, open_seconds=1.0):
                event = EventId.parse(dict(record.headers).get(ID_HEADER, b""))
                if event is not None:
                    found[record.topic] = event
    return found
