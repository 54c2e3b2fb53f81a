"""Which changes topics end with, by the ids in their records' headers."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.topics import partition_counts
from changefeed.records.block import ID_HEADER
from changefeed.records.event_id import EventId

_LAST = 10
"""So many offsets are looked at: the last ones of a partition may be those of transactions' ends."""


def last_ids(connection: KafkaConnection, topics: Iterable[str]) -> dict[str, EventId]:
    """An id of one of the last records of each of ``topics`` that is there and has such records.

    Raises BrokerUnavailableError, TopicError.
    """
    counts = partition_counts(connection, topics)
    partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    if not partitions:
        return {}
    wanted = "to read the last records of the pipeline's topics"
    with partition_reader(connection, partitions, wanted) as look:
        first, ends = look.first_offsets(), look.last_stable_offsets()
    start = {each: max(first[each], ends[each] - _LAST) for each in partitions if ends[each] > first[each]}
    found: dict[str, EventId] = {}
    if start:
        with partition_reader(connection, list(start), wanted, start=start) as reader:
            ends = {each: ends[each] for each in start}
            for record in reader.to_end(ends, patience_seconds=6 * connection.timeout_seconds, open_seconds=1.0):
                event = EventId.parse(dict(record.headers).get(ID_HEADER, b""))
                if event is not None:
                    found[record.topic] = event
    return found
