"""Reads the newest records of one topic of a pipeline, or those that match a filter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from changefeed.errors import SettingsError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.periods import latest_periods
from changefeed.kafka.commit_log.records import FirstRecord
from changefeed.kafka.partition_reader import KafkaRecord, PartitionReader, partition_reader
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.topics import partition_counts
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.operations.former_names import FormerNames
from changefeed.operations.pipeline_topics import PipelineTopic, last_windows
from changefeed.operations.record_filter import COMMIT_HEADER, RecordFilter
from changefeed.operations.record_search import Matches, Searched, SearchLimits, event_id, search_backwards
from changefeed.operations.shown_records import RecordView, ShownRecord
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.schema_history import load_history
from changefeed.records.partition import partition_of
from changefeed.settings.pipeline import Pipeline

_LIMITS = SearchLimits()
_CHOSEN = ("table", "published", "transactions")
"""The kinds of topics whose names are chosen, so that other programs and pipelines may publish to them."""


@dataclass(frozen=True)
class FoundRecords:
    """Records, the newest first, and how far the topic was searched; ``exists`` is False for a missing topic."""

    records: tuple[ShownRecord, ...]
    searched: Searched
    exists: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the REST API."""
        return {
            "records": [record.to_json() for record in self.records],
            "searched": self.searched.to_json(),
            "exists": self.exists,
        }


def find_topic(topics: Mapping[str, PipelineTopic], topic: str | None, table: str | None) -> PipelineTopic | None:
    """The topic of a pipeline with the name ``topic``, or with rows of ``table``; None if neither is requested.

    Raises SettingsError if the pipeline has no such topic, so that topics of other programs are not read.
    """
    if topic:
        found = topics.get(topic)
        if found is None:
            raise SettingsError(
                f"expected a topic of the pipeline, found {topic!r}. It publishes to: {', '.join(topics) or 'none yet'}"
            )
        return found
    if not table:
        return None
    found = next((each for each in topics.values() if table in each.tables), None)
    if found is None:
        names = [name for each in topics.values() for name in each.tables]
        raise SettingsError(f"expected a table of the pipeline, found {table!r}. It has: {', '.join(names) or 'none'}")
    return found


def read_records(
    connections: PipelineConnections,
    topics: Mapping[str, PipelineTopic],
    topic: PipelineTopic,
    state: CommitLogState,
    conditions: RecordFilter,
    *,
    limit: int = 20,
    limits: SearchLimits = _LIMITS,
) -> FoundRecords:
    """At most ``limit`` committed records of ``topic`` that match ``conditions``, the newest first.

    ``topics`` are all topics of the pipeline, ``state`` is the state of its commit log. The search ends at ``limits``.
    Of topics whose name settings or rows choose only the pipeline's own records are returned: those of known windows,
    and rows of its snapshots.

    Raises BrokerUnavailableError, TopicError, SettingsError, the errors of `Registry`, and those of `load_history` if
    the pipeline hides columns.
    """
    count = partition_counts(connections.kafka, [topic.topic]).get(topic.topic, 0)
    if not count:
        return FoundRecords((), Searched(0, (), None, is_complete=True), exists=False)
    windows = RecordWindows.of(last_windows(state))
    pipeline = connections.pipeline
    owner = _Owner.of(pipeline, state, windows)
    schemas = connections.registry.schema if connections.registry else None
    former = FormerNames(pipeline, load_history(connections, state)) if pipeline.hides_columns else None
    view = RecordView(pipeline, topics, connections.routes.format(0), schemas, former)
    partitions = [(topic.topic, number) for number in range(count)]
    with partition_reader(connections.kafka, partitions, "to show records") as reader:
        ranges = windows.limit_ends(_ranges(reader, conditions), conditions.place)
        search = _TopicSearch(view, topic, owner, conditions, limit, limits, connections.kafka.timeout_seconds)
        key = _partition_of_key(connections, topic, conditions, count)
        if key is not None:
            found = search.in_partition(reader, ranges, key)
            if found is not None:
                return found
        return search.in_all(reader, ranges)


@dataclass(frozen=True)
class _TopicSearch:
    view: RecordView
    topic: PipelineTopic
    owner: _Owner
    conditions: RecordFilter
    limit: int
    limits: SearchLimits
    timeout_seconds: float

    def in_all(self, reader: PartitionReader, ranges: Mapping[TopicPartition, tuple[int, int]]) -> FoundRecords:
        """The records that match, of all partitions."""
        return self._search(reader, ranges, partial(self._matches, reader))

    def in_partition(
        self, reader: PartitionReader, ranges: Mapping[TopicPartition, tuple[int, int]], key: bytes
    ) -> FoundRecords | None:
        """The records that match, of the partition of ``key``. None if all partitions must be read:

        - if records of the partition show that keys do not choose partitions as Kafka's default partitioner does, or
          are not compact JSON;
        - if the complete partition has none, because the topic may have had fewer partitions.
        """
        count = len(ranges)
        number = partition_of(key, b"", count)
        keys_choose: list[bool] = []

        def matches(record: KafkaRecord, before: KafkaRecord | None) -> bool:
            if record.key is not None:
                fits = record.key.startswith(b"{") and not record.key.startswith(b'{"schema":')
                keys_choose.append(fits and partition_of(record.key, b"", count) == number)
            return self._matches(reader, record, before)

        found = self._search(reader, {(self.topic.topic, number): ranges[self.topic.topic, number]}, matches)
        has_answer = bool(found.records) or found.searched.stopped_by != ""
        return found if has_answer and keys_choose and all(keys_choose) else None

    def _search(
        self, reader: PartitionReader, ranges: Mapping[TopicPartition, tuple[int, int]], matches: Matches
    ) -> FoundRecords:
        records, searched = search_backwards(
            reader, ranges, self.limit, matches, limits=self.limits, timeout_seconds=self.timeout_seconds
        )
        shown = [self.view.show(record, self.owner.windows.number_of(record)) for record in records]
        return FoundRecords(tuple(shown), searched)

    def _matches(self, reader: PartitionReader, record: KafkaRecord, before: KafkaRecord | None) -> bool:
        if not self.conditions.matches(record):
            return False
        if self.conditions.key and not self.conditions.matches_key(self.view.key(record)):
            return False
        if self.topic.kind not in _CHOSEN:
            return True
        return self._is_own(record) and (record.value is not None or self._deletes_own(reader, record, before))

    def _is_own(self, record: KafkaRecord) -> bool:
        return self.owner.has_published(record, self.view.named_tables(record))

    def _deletes_own(self, reader: PartitionReader, tombstone: KafkaRecord, before: KafkaRecord | None) -> bool:
        """Whether the pipeline wrote the tombstone: it names no table, but the record of its delete before it does.

        True if that record is not there any more, as in a compacted topic.
        """
        event = event_id(tombstone)
        if event is None or not event.step or not tombstone.offset:
            return True
        if before is None:
            place = {(tombstone.topic, tombstone.partition): (tombstone.offset - 1, tombstone.offset)}
            before = next(iter(list(reader.between(place, timeout_seconds=self.timeout_seconds))), None)
        if before is None or (its := event_id(before)) is None or replace(its, step=event.step) != event:
            return True
        return self._is_own(before)


@dataclass(frozen=True)
class _Owner:
    """Tells the pipeline's own records from those of others in a topic: settings may name any topic.

    Its own are those of its windows, without rows of tables that it does not capture, and rows that a snapshot of its
    ``servers`` (UUIDs) read from its tables.
    """

    pipeline: Pipeline
    servers: frozenset[str]
    windows: RecordWindows

    @classmethod
    def of(cls, pipeline: Pipeline, state: CommitLogState, windows: RecordWindows) -> _Owner:
        return cls(pipeline, servers_of(state), windows)

    def has_published(self, record: KafkaRecord, named: Collection[str]) -> bool:
        """Whether the pipeline published ``record``, whose value has rows of the tables ``named``, if it has names.

        Another pipeline of the same server may publish to the topic during a window, changes of the same range.
        """
        event = event_id(record)
        if event is None or not event.is_read:
            manifest = self.windows.manifest_of(record)
            return manifest is not None and all(name in manifest.rows or self._captures(name) for name in named)
        return event.server in self.servers and self._captures(event.origin.rpartition("#")[0])

    def _captures(self, name: str) -> bool:
        database, _, table = name.partition(".")
        return self.pipeline.tables.matches(database, table)


def servers_of(state: CommitLogState) -> frozenset[str]:
    """The UUIDs of the servers from which the pipeline has published, of those that its commit log still names."""
    first = (record.checkpoint.server_uuid for record in state.of(FirstRecord))
    sealed = (manifest.window.server_uuid for manifest in last_windows(state))
    merged = (server for period in latest_periods(state, len(state.entries)) for server in period.servers)
    sought = (seek.server_uuid for seek in state.seeks.values())
    return frozenset((*first, *sealed, *merged, *sought))


@dataclass(frozen=True)
class RecordWindows:
    """The offsets that windows published, by topic-partition, the latest window first."""

    by_partition: Mapping[TopicPartition, tuple[tuple[int, int, Manifest], ...]]

    @classmethod
    def of(cls, manifests: list[Manifest]) -> RecordWindows:
        """The offsets in ``manifests``, which are in the order of the windows."""
        offsets: dict[TopicPartition, list[tuple[int, int, Manifest]]] = {}
        for manifest in reversed(manifests):
            for receipt in manifest.topics:
                if receipt.first_offset is not None and receipt.last_offset is not None:
                    of_partition = offsets.setdefault((receipt.topic, receipt.partition), [])
                    of_partition.append((receipt.first_offset, receipt.last_offset, manifest))
        return cls({name: tuple(each) for name, each in offsets.items()})

    def manifest_of(self, record: KafkaRecord) -> Manifest | None:
        """The manifest of the window that published ``record``; None if no known window did.

        The record's id is of the window, too: a snapshot or another program may publish between the offsets.
        """
        for first, last, manifest in self.by_partition.get((record.topic, record.partition), ()):
            if first <= record.offset <= last:
                return manifest if _is_of(record, manifest) else None
        return None

    def number_of(self, record: KafkaRecord) -> int | None:
        """The number of the window that published ``record``."""
        manifest = self.manifest_of(record)
        return None if manifest is None else manifest.window.number

    def limit_ends(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], place: BinlogCoordinates | None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """``ranges`` up to the records of the window that has the change at ``place``, if there is such a window."""
        if place is None:
            return dict(ranges)
        limited = {}
        for name, (low, end) in ranges.items():
            lasts = [last for _, last, manifest in self.by_partition.get(name, ()) if _has(manifest, place)]
            limited[name] = (low, max(low, min(end, max(lasts) + 1))) if lasts else (low, end)
        return limited


def _is_of(record: KafkaRecord, manifest: Manifest) -> bool:
    """Whether the record's id is of a change in the window, or of one whose XA COMMIT is in it."""
    event = event_id(record)
    if event is None or event.is_read or event.server != manifest.window.server_uuid:
        return False
    commit = dict(record.headers).get(COMMIT_HEADER)
    text = f"{event.origin}:{event.position}" if commit is None else commit.decode("utf-8", "replace")
    try:
        return _has(manifest, BinlogCoordinates.parse(text))
    except SettingsError:
        return False


def _has(manifest: Manifest, place: BinlogCoordinates) -> bool:
    """Whether the change at ``place`` is in the window: ids have the begin of an event."""
    try:
        return manifest.window.start <= place < manifest.window.head
    except ValueError:  # another base name
        return False


def _ranges(reader: PartitionReader, conditions: RecordFilter) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets of each partition that may have records of the requested time."""
    first, ends = reader.first_offsets(), reader.last_stable_offsets()
    since = reader.offsets_at(conditions.since_ms) if conditions.since_ms is not None else {}
    until = reader.offsets_at(conditions.until_ms) if conditions.until_ms is not None else {}
    ranges = {}
    for name, end in ends.items():
        low = first[name] if conditions.since_ms is None else since.get(name)
        last = until.get(name)
        stop = end if last is None else min(end, last)
        ranges[name] = (stop, stop) if low is None else (min(low, stop), stop)
    return ranges


def _partition_of_key(
    connections: PipelineConnections, topic: PipelineTopic, conditions: RecordFilter, count: int
) -> bytes | None:
    """The bytes of the requested key if the settings let it choose the partition; None otherwise."""
    if count < 2 or not topic.tables:
        return None
    routes = [connections.routes.of(*name.partition(".")[::2]) for name in topic.tables]
    by_key = all(route is not None and route.route.partition_by == "key" for route in routes)
    return conditions.key_bytes if by_key else None
