"""The topics' side: what the records of a partition say of rows, and whether they stand in it as they should."""

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
from changefeed.verify.job import PartitionPiece, VerifyJob
from changefeed.verify.partition_records import Flags, records_of
from changefeed.verify.read_rows import NOT_READ
from changefeed.verify.record_moments import RecordMoments
from changefeed.verify.record_order import RecordOrder, repeated
from changefeed.verify.record_texts import RecordTexts
from changefeed.verify.row_digests import row_digest, values_key
from changefeed.verify.tables import JudgedTable

_SHOWN = 20
"""So many records of a kind are named."""

Stray = tuple[str, str, int, int]
"""What is the matter with a record, its id or key for people, its partition and its offset."""

Unkeyed = tuple[int, int, int, int]
"""A table, how many of its records have no key, the moment of the last and the offset of the first."""


@dataclass
class PartitionReport:
    """What a partition held, besides the rows."""

    topic: str
    partition: int
    records: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """How many records are `repeated`, `disordered`, `foreign` (not changefeed's, or not read) or `statements`."""
    shown: list[Stray] = field(default_factory=list)
    """The first of them."""
    emptied: list[tuple[int, int, int]] = field(default_factory=list)
    """Table, offset and moment of records that say that a table was emptied."""
    unplaced: list[int] = field(default_factory=list)
    """Tables with rows that a snapshot read, nobody knows when."""

    unkeyed: list[Unkeyed] = field(default_factory=list)
    """By table the records without a key, of tables that have one."""

    def note_unkeyed(self, table: int, moment: int, offset: int) -> None:
        """Count a record without a key."""
        known = next((each for each in self.unkeyed if each[0] == table), (table, 0, moment, offset))
        others = [each for each in self.unkeyed if each[0] != table]
        self.unkeyed = [*others, (table, known[1] + 1, max(known[2], moment), known[3])]

    def note(self, kind: str, text: str, offset: int, count: int = 1) -> None:
        """Count a record that should not be there."""
        self.counts[kind] = self.counts.get(kind, 0) + count
        if sum(1 for stray in self.shown if stray[0] == kind) < _SHOWN:
            self.shown.append((kind, text, self.partition, offset))


class TopicRows:
    """Reads partitions from their first record on."""

    def __init__(self, job: VerifyJob) -> None:
        self._job = job
        self._stream = (job.source_uuid, BinlogCoordinates.parse(job.begun).base)

    def read(self, piece: PartitionPiece) -> Iterator[Entries | PartitionReport]:
        """What the records say of the rows that are looked at, then the report."""
        partition = _Partition(self._job, piece)
        moments = RecordMoments(self._stream)
        for records in records_of(self._job, piece):
            yield from partition.entries(records, *moments.take(records))
        if moments.is_doubtful and not self._job.is_exact:
            partition.note_late()
        yield partition.report


class _Partition:
    """A partition on its way through."""

    def __init__(self, job: VerifyJob, piece: PartitionPiece) -> None:
        self._job, self._piece = job, piece
        self.report = PartitionReport(piece.topic, piece.partition)
        self._tables = job.tables.of_topic(piece.topic)
        self._changes = job.record_reader(next(iter(self._tables.values())))
        self._texts = RecordTexts(self._changes, tuple(self._tables.values()), piece.partition, job.views)
        self._wanted = {key for table, key in job.keys or () for each in self._tables.values() if each.number == table}
        self._by_key = job.is_exact and self._changes.is_json and not any(t.without_key for t in self._tables.values())

    def entries(self, records: RecordIndex, moments: Words, known: Flags, chunks: Words) -> Iterator[Entries]:
        """What the next records say. Those whose text is enough are not read one by one."""
        self.report.records += len(records)
        if self._job.is_exact:
            left = [number for number in range(len(records)) if not self._by_key or self._may_want(records.key(number))]
        else:
            texts, is_done = self._texts.entries(records, moments, known, chunks)
            yield from texts
            left = np.flatnonzero(~is_done).tolist()
        if left:
            of_each = (self._each(records, number, int(moments[number]), int(chunks[number])) for number in left)
            yield Entries.of([entry for entries in of_each for entry in entries])

    def _may_want(self, key: bytes | None) -> bool:
        return key is None or key in self._wanted or key.startswith(SCHEMA_KEY)

    def _each(self, records: RecordIndex, number: int, moment: int, chunk: int) -> Iterator[Entry]:
        for change in self._changes_of(records, number):
            yield from self._of_change(records, number, change, moment, chunk)

    def _of_change(
        self, records: RecordIndex, number: int, change: ReadChange, moment: int, chunk: int
    ) -> Iterator[Entry]:
        offset = int(records.offsets[number])
        if change.op == "q":
            self.report.note("statements", records.event_id(number).decode(), offset)
        table = self._tables.get(change.table)
        if table is None:
            return
        if change.op == "t":
            self.report.emptied.append((table.number, offset, moment))
        where = (Side.TOPIC, self._piece.partition, offset, moment)
        if table.without_key:
            view = self._job.views.get(table.number)
            at = moment if view is None else view.moment_in(moment, chunk)
            if view is None and table.needs_view and chunk != NOT_READ and table.number not in self.report.unplaced:
                self.report.unplaced.append(table.number)
            if at is not None:
                yield from self._counted(table, change, (*where[:3], at))
        elif change.op in ("c", "u", "r", "d", "tombstone"):
            key = records.key(number)
            if key is None:
                self.report.note_unkeyed(table.number, moment, offset)
                return
            try:
                key = self._changes.key(key)
            except ValueError as error:
                self.report.note("foreign", f"its key: {error}", offset)
                return
            if self._job.wants(table.number, key):
                digest = b"" if change.after is None else row_digest(table.compared(change.after))
                yield Entry(table.number, key, *where, int(change.after is not None), digest)

    def _counted(self, table: JudgedTable, change: ReadChange, where: tuple[int, int, int, int]) -> Iterator[Entry]:
        if change.op in ("u", "d") and change.before is None:
            self.report.note("foreign", f"op {change.op} of {table.name} without the row before it", where[2])
            return
        for row, weight in ((change.before, -1), (change.after, 1)):
            if row is not None:
                digest = row_digest(table.compared(row))
                if self._job.wants(table.number, values_key(digest)):
                    yield Entry(table.number, values_key(digest), *where, weight, digest)

    def _changes_of(self, records: RecordIndex, number: int) -> Sequence[ReadChange]:
        """What a record says; nothing of one that is noted as foreign."""
        offset = int(records.offsets[number])
        if EventId.parse(records.event_id(number)) is None:
            self.report.note("foreign", "it has no id of changefeed's", offset)
            return ()
        try:
            return read_record(records.value(number), self._changes, self._tables)
        except ValueError as error:
            self.report.note("foreign", str(error), offset)
            return ()

    def note_late(self) -> None:
        """Look at the records' order one by one, and tell those that stand there twice from those that are late."""
        order = RecordOrder()
        for records in records_of(self._job, self._piece):
            for number in range(len(records)):
                text = records.event_id(number)
                event = EventId.parse(text)
                if event is not None and self._is_of_rows(records, number):
                    order.take(event, text, records.gtid(number), int(records.offsets[number]))
        if not order.late:
            return
        every = records_of(self._job, self._piece)
        twice = repeated(order.late, (records.event_id(number) for records in every for number in range(len(records))))
        for text, offset in order.late:
            self.report.note("repeated" if text in twice else "disordered", text.decode(), offset)
        if more := order.late_count - len(order.late):
            self.report.counts["disordered"] = self.report.counts.get("disordered", 0) + more

    def _is_of_rows(self, records: RecordIndex, number: int) -> bool:
        """Whether a record is one of a change, and not of a definition."""
        try:
            return any(each.op for each in read_record(records.value(number), self._changes, self._tables))
        except ValueError:
            return False


def read_record(value: bytes | None, changes: RecordReader, tables: Mapping[str, JudgedTable]) -> Sequence[ReadChange]:
    """What a record of a topic that holds ``tables`` says of each of its rows; tables that are not known are empty.

    Raises ValueError for a value that is none of the format.
    """
    only = next(iter(tables)) if len(tables) == 1 else ""
    if value is None:
        return (ReadChange("tombstone", only),)
    return [_named(change, only) for change in changes.of(value)]


def _named(change: ReadChange, only: str) -> ReadChange:
    """``change`` with its table; ``only`` is the one of its topic, '' where there are several."""
    if change.op == "s":
        return _of_statement(change.sql, change.table)
    return change if change.table else ReadChange(change.op, only, change.before, change.after)


def _of_statement(sql: str, database: str) -> ReadChange:
    """What a statement does to rows, by its text; nobody knows that of one whose text is hidden."""
    read = read_statement(sql, SessionContext(database))
    if read.kind is StatementKind.TRUNCATE:
        return ReadChange("t", f"{read.tables[0].database}.{read.tables[0].table}")
    return ReadChange("q" if read.changes_rows or not sql else "")
