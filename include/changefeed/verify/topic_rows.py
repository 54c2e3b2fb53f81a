"""Reads the topics' side: entries of the rows in a partition's records, and the faults of these records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from changefeed.ddl.ddl_statement import Kind as StatementKind
from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.session import SessionContext
from changefeed.formats.reader import SCHEMA_KEY, ReadChange, RecordReader
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.native.memory import Words
from changefeed.records.event_id import EventId
from changefeed.records.record_index import RecordIndex
from changefeed.verify.entries import Entries, Entry, Side
from changefeed.verify.job import OffsetRange, VerifyJob
from changefeed.verify.partition_records import Flags, records_of
from changefeed.verify.read_rows import NOT_READ
from changefeed.verify.record_moments import RecordMoments
from changefeed.verify.record_order import RecordOrder, find_repeated
from changefeed.verify.record_texts import RecordTexts
from changefeed.verify.row_digests import row_digest, values_key
from changefeed.verify.tables import ComparedTable

_SHOWN = 20
"""The maximum number of faults of a kind that are shown."""

RecordFault = tuple[str, str, int, int]
"""The kind of a fault, its text, and the partition and offset of its record."""

KeylessRecords = tuple[int, int, int, int]
"""A table's number, the number of its records without a key, the moment of the last and the offset of the first."""


@dataclass
class PartitionReport:
    """The report of a partition: the number of its records, their faults, and facts that the comparison needs."""

    topic: str
    partition: int
    records: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """The number of records that are "repeated", "disordered", "foreign" (not written by changefeed, or not readable)
    or "statements"."""
    shown: list[RecordFault] = field(default_factory=list)
    """The first faults of each kind."""
    truncates: list[tuple[int, int, int]] = field(default_factory=list)
    """Table, offset and moment of each TRUNCATE."""
    unplaced: list[int] = field(default_factory=list)
    """Tables with rows of a snapshot whose coordinates are not known."""

    keyless_records: list[KeylessRecords] = field(default_factory=list)
    """For each table that has a key, its records without a key."""

    def note_keyless_record(self, table: int, moment: int, offset: int) -> None:
        """Count a record without a key, of a table that has a key."""
        known = next((each for each in self.keyless_records if each[0] == table), (table, 0, moment, offset))
        others = [each for each in self.keyless_records if each[0] != table]
        self.keyless_records = [*others, (table, known[1] + 1, max(known[2], moment), known[3])]

    def note(self, kind: str, text: str, offset: int, count: int = 1) -> None:
        """Count ``count`` faulty records of a kind."""
        self.counts[kind] = self.counts.get(kind, 0) + count
        if sum(1 for fault in self.shown if fault[0] == kind) < _SHOWN:
            self.shown.append((kind, text, self.partition, offset))


class TopicRows:
    """Reads complete partitions."""

    def __init__(self, job: VerifyJob) -> None:
        self._job = job
        self._stream = (job.source_uuid, BinlogCoordinates.parse(job.start).base)

    def read(self, offset_range: OffsetRange) -> Iterator[Entries | PartitionReport]:
        """Yield the entries of the rows that are compared, then the report."""
        partition = _Partition(self._job, offset_range)
        moments = RecordMoments(self._stream)
        for records in records_of(self._job, offset_range):
            yield from partition.entries(records, *moments.take(records))
        if moments.is_doubtful and not self._job.is_exact:
            partition.note_late_records()
        yield partition.report


class _Partition:
    """Reads one partition."""

    def __init__(self, job: VerifyJob, offset_range: OffsetRange) -> None:
        self._job, self._offset_range = job, offset_range
        self.report = PartitionReport(offset_range.topic, offset_range.partition)
        self._tables = job.tables.of_topic(offset_range.topic)
        self._changes = job.record_reader(next(iter(self._tables.values())))
        self._texts = RecordTexts(self._changes, tuple(self._tables.values()), offset_range.partition, job.views)
        self._keys = {key for table, key in job.keys or () for each in self._tables.values() if each.number == table}
        self._by_key = job.is_exact and self._changes.is_json and not any(t.without_key for t in self._tables.values())

    def entries(self, records: RecordIndex, moments: Words, known: Flags, chunks: Words) -> Iterator[Entries]:
        """Yield the entries of the next records. Records that can be compared by their text are not read one by one."""
        self.report.records += len(records)
        if self._job.is_exact:
            left = [
                number for number in range(len(records)) if not self._by_key or self._may_include(records.key(number))
            ]
        else:
            texts, is_done = self._texts.entries(records, moments, known, chunks)
            yield from texts
            left = np.flatnonzero(~is_done).tolist()
        if left:
            of_each = (
                self._record_entries(records, number, int(moments[number]), int(chunks[number])) for number in left
            )
            yield Entries.of([entry for entries in of_each for entry in entries])

    def _may_include(self, key: bytes | None) -> bool:
        return key is None or key in self._keys or key.startswith(SCHEMA_KEY)

    def _record_entries(self, records: RecordIndex, number: int, moment: int, chunk: int) -> Iterator[Entry]:
        for change in self._changes_of(records, number):
            yield from self._change_entries(records, number, change, moment, chunk)

    def _change_entries(
        self, records: RecordIndex, number: int, change: ReadChange, moment: int, chunk: int
    ) -> Iterator[Entry]:
        offset = int(records.offsets[number])
        if change.op == "q":
            self.report.note("statements", records.event_id(number).decode(), offset)
        table = self._tables.get(change.table)
        if table is None:
            return
        if change.op == "t":
            self.report.truncates.append((table.number, offset, moment))
        where = (Side.TOPIC, self._offset_range.partition, offset, moment)
        if table.without_key:
            view = self._job.views.get(table.number)
            at = moment if view is None else view.moment_in(moment, chunk)
            if view is None and table.needs_view and chunk != NOT_READ and table.number not in self.report.unplaced:
                self.report.unplaced.append(table.number)
            if at is not None:
                yield from self._count_entries(table, change, (*where[:3], at))
        elif change.op in ("c", "u", "r", "w", "d", "tombstone"):
            key = records.key(number)
            if key is None:
                self.report.note_keyless_record(table.number, moment, offset)
                return
            try:
                key = self._changes.key(key)
            except ValueError as error:
                self.report.note("foreign", f"its key: {error}", offset)
                return
            if self._job.includes(table.number, key):
                digest = b"" if change.after is None else row_digest(table.compared_columns(change.after))
                yield Entry(table.number, key, *where, int(change.after is not None), digest)

    def _count_entries(
        self, table: ComparedTable, change: ReadChange, where: tuple[int, int, int, int]
    ) -> Iterator[Entry]:
        if change.op in ("u", "d") and change.before is None:
            self.report.note("foreign", f"op {change.op} of {table.name} without the row before the change", where[2])
            return
        for row, weight in ((change.before, -1), (change.after, 1)):
            if row is not None:
                digest = row_digest(table.compared_columns(row))
                if self._job.includes(table.number, values_key(digest)):
                    yield Entry(table.number, values_key(digest), *where, weight, digest)

    def _changes_of(self, records: RecordIndex, number: int) -> Sequence[ReadChange]:
        """The changes of a record; () for a record that is counted as foreign."""
        offset = int(records.offsets[number])
        if EventId.parse(records.event_id(number)) is None:
            self.report.note("foreign", "it has no id of changefeed", offset)
            return ()
        try:
            return read_record(records.value(number), self._changes, self._tables)
        except ValueError as error:
            self.report.note("foreign", str(error), offset)
            return ()

    def note_late_records(self) -> None:
        """Check the order of the records one by one, and count each late record as repeated or disordered."""
        order = RecordOrder()
        for records in records_of(self._job, self._offset_range):
            for number in range(len(records)):
                text = records.event_id(number)
                event = EventId.parse(text)
                if event is not None and self._is_of_rows(records, number):
                    order.take(event, text, records.gtid(number), int(records.offsets[number]))
        if not order.late:
            return
        every = records_of(self._job, self._offset_range)
        twice = find_repeated(
            order.late, (records.event_id(number) for records in every for number in range(len(records)))
        )
        for text, offset in order.late:
            self.report.note("repeated" if text in twice else "disordered", text.decode(), offset)
        if more := order.late_count - len(order.late):
            self.report.counts["disordered"] = self.report.counts.get("disordered", 0) + more

    def _is_of_rows(self, records: RecordIndex, number: int) -> bool:
        """Whether the record has a change of rows, not only DDL."""
        try:
            return any(each.op for each in read_record(records.value(number), self._changes, self._tables))
        except ValueError:
            return False


def read_record(
    value: bytes | None, changes: RecordReader, tables: Mapping[str, ComparedTable]
) -> Sequence[ReadChange]:
    """The row changes in a record of a topic with ``tables``. The table of a change is '' if it is not known.

    Raises ValueError for a value that does not have the topic's format.
    """
    only = next(iter(tables)) if len(tables) == 1 else ""
    if value is None:
        return (ReadChange("tombstone", only),)
    return [_with_table(change, only) for change in changes.of(value)]


def _with_table(change: ReadChange, only: str) -> ReadChange:
    """``change`` with its table; ``only`` is the topic's only table, '' if it has several."""
    if change.op == "s":
        return _statement_change(change.sql, change.table)
    return change if change.table else ReadChange(change.op, only, change.before, change.after)


def _statement_change(sql: str, database: str) -> ReadChange:
    """The row change of a statement: op t for TRUNCATE, op q for unknown changes of rows, '' for no change of rows.

    The rows that a statement changes are not known, and a hidden text ('') may change rows.
    """
    read = read_statement(sql, SessionContext(database))
    if read.kind is StatementKind.TRUNCATE:
        return ReadChange("t", f"{read.tables[0].database}.{read.tables[0].table}")
    return ReadChange("q" if read.changes_rows or not sql else "")
