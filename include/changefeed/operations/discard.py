"""discard: deletes dead letters that nobody needs any more, and stores a record of it.

Kafka deletes no single record, only the oldest records of a partition (DeleteRecords). So a discard deletes all dead
letters of a partition up to an offset. The topic's retention does the same later.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from changefeed.errors import SettingsError, TopicError
from changefeed.kafka.commit_log.records import DiscardRecord
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.topics import delete_oldest_records, partition_counts
from changefeed.operations.record_search import event_id
from changefeed.operations.records import servers_of
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.requests.request import check_reason

_log = logging.getLogger(__name__)
_MOST_RECORDS, _MOST_SECONDS = 50_000, 10.0
"""Limits of a plan, which reads each dead letter before it is deleted."""
_REASON, _TABLE, _TOPIC = "changefeed.reason", "changefeed.table", "changefeed.topic"


@dataclass(frozen=True)
class DiscardPlan:
    """The dead letters that a discard deletes.

    ``up_to`` has the offset of the last one by partition, ``before`` the first offset that the partition has now.
    ``tables`` counts the dead letters by their table, or by the topic that they were meant for.
    """

    topic: str
    before: Mapping[int, int]
    up_to: Mapping[int, int]
    tables: Mapping[str, int]
    oldest_ms: int | None
    newest_ms: int | None

    @property
    def letters(self) -> int:
        """The number of dead letters."""
        return sum(self.tables.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the REST API."""
        return {
            "topic": self.topic,
            "before": {str(partition): offset for partition, offset in self.before.items()},
            "up_to": {str(partition): offset for partition, offset in self.up_to.items()},
            "letters": self.letters,
            "tables": dict(self.tables),
            "oldest_ms": self.oldest_ms,
            "newest_ms": self.newest_ms,
        }


def plan_discard(connections: PipelineConnections, up_to: Mapping[int, int]) -> DiscardPlan:
    """The dead letters that a discard ``up_to`` these offsets deletes, by partition; {} for all that are there now.

    Changes nothing. Reads only the dead-letter topic of the pipeline.

    Raises:
    - SettingsError if the pipeline has no dead-letter topic, if an offset has no record, if there are more dead letters
      than can be checked, or if another program's or another pipeline's record would be deleted.
    - BrokerUnavailableError, TopicError.
    """
    topic = _topic_of(connections)
    count = partition_counts(connections.kafka, [topic]).get(topic, 0)
    if not count:
        raise SettingsError(f"expected dead letters in topic {topic!r}, found no such topic. Nothing was deleted.")
    with partition_reader(
        connections.kafka, [(topic, number) for number in range(count)], "to discard dead letters"
    ) as reader:
        first = {partition: offset for (_, partition), offset in reader.first_offsets().items()}
        end = {partition: offset for (_, partition), offset in reader.last_stable_offsets().items()}
        chosen = up_to or {partition: end[partition] - 1 for partition in end if first[partition] < end[partition]}
        _check_offsets(topic, chosen, first, end)
        ranges = {(topic, partition): (first[partition], offset + 1) for partition, offset in chosen.items()}
        timeout_seconds = connections.kafka.timeout_seconds
        letters = reader.between(ranges, timeout_seconds=timeout_seconds) if ranges else ()
        return _plan(connections, topic, {partition: first[partition] for partition in chosen}, chosen, letters)


def _plan(
    connections: PipelineConnections,
    topic: str,
    before: Mapping[int, int],
    up_to: Mapping[int, int],
    letters: Iterable[KafkaRecord],
) -> DiscardPlan:
    servers = servers_of(connections.commit_log().read(open_seconds=1.0))
    deadline = time.monotonic() + _MOST_SECONDS
    tables: Counter[str] = Counter()
    times: list[int] = []
    for letter in letters:
        if time.monotonic() > deadline:
            raise SettingsError(
                f"the dead letters could not be read within {_MOST_SECONDS:.0f} seconds. Nothing was deleted. Discard "
                "up to an older one first."
            )
        tables[_table_of(connections.pipeline.name, servers, letter)] += 1
        times.append(letter.timestamp_ms)
    return DiscardPlan(topic, before, up_to, tables, min(times, default=None), max(times, default=None))


def discard(connections: PipelineConnections, planned: DiscardPlan, *, who: str, why: str) -> DiscardRecord:
    """Delete the dead letters of ``planned``, and return the record, which the commit log keeps.

    The record is written first. If the process dies before the deletion, the dead letters are still there, and can be
    discarded again. Raises SettingsError without a reason; TopicError if Kafka does not allow it, without a record;
    BrokerUnavailableError, with the record, as it is not known then whether the dead letters are deleted.
    """
    check_reason(why, "a discard")
    topic = _topic_of(connections)
    at_ms = int(time.time() * 1000)
    record = DiscardRecord(at_ms, who, why, dict(planned.up_to), planned.letters, tuple(sorted(planned.tables)))
    log = connections.commit_log()
    log.note(record)
    deleted = 0
    try:
        for partition, offset in planned.up_to.items():
            delete_oldest_records(connections.kafka, topic, partition, offset)
            deleted += 1
    except TopicError:
        if not deleted:
            log.forget_notes([record])
        raise
    _log.info("%s discarded %d dead letters of pipeline %s: %s", who, record.letters, connections.pipeline.name, why)
    return record


def _topic_of(connections: PipelineConnections) -> str:
    pipeline = connections.pipeline
    if (topic := pipeline.dead_letter_topic) is None:
        raise SettingsError(
            f"expected `on_bad_record: dead_letter` in pipeline {pipeline.name!r}, found "
            f"{pipeline.kafka.on_bad_record!r}: it has no dead-letter topic. Nothing was deleted."
        )
    return topic


def _check_offsets(topic: str, up_to: Mapping[int, int], first: Mapping[int, int], end: Mapping[int, int]) -> None:
    for partition, offset in up_to.items():
        if partition not in first:
            raise SettingsError(f"expected a partition of topic {topic!r}, 0 to {len(first) - 1}, found {partition}")
        if not first[partition] <= offset < end[partition]:
            there = f"{first[partition]} to {end[partition] - 1}" if first[partition] < end[partition] else "none"
            raise SettingsError(
                f"expected the offset of a record in partition {partition} of topic {topic!r}, of which there are "
                f"{there}, found {offset}. Nothing was deleted; look again."
            )
    records = sum(offset + 1 - first[partition] for partition, offset in up_to.items())
    if records > _MOST_RECORDS:
        raise SettingsError(
            f"expected at most {_MOST_RECORDS:,} records, found {records:,}: each is read before it is deleted. "
            "Nothing was deleted. Discard up to an older one first."
        )


def _table_of(pipeline: str, servers: frozenset[str], letter: KafkaRecord) -> str:
    """The table of a dead letter, or the topic that it was meant for. Raises SettingsError for a record of others."""
    headers = {name: value.decode("utf-8", "replace") for name, value in letter.headers if value is not None}
    event = event_id(letter)
    if _REASON not in headers or event is None:
        found = "a record that is no dead letter"
    elif event.server not in servers:
        found = f"a dead letter of server {event.server}, of which the pipeline knows no window"
    else:
        return headers.get(_TABLE) or headers.get(_TOPIC) or "not known"
    raise SettingsError(
        f"expected only dead letters of pipeline {pipeline!r}, found {found} at offset {letter.offset} of partition "
        f"{letter.partition} of topic {letter.topic!r}: another program or pipeline, or a backfill from an older "
        "server, published there. Nothing was deleted. Discard up to an older dead letter, or delete the records with "
        "kafka-delete-records.sh."
    )
