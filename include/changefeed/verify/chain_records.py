"""Reads the entries of a deep comparison: for each record of a partition its key, op and digests of its row images."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from changefeed.errors import BadRecordError
from changefeed.formats.reader import JsonImage, ReadChange
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.native.memory import Words
from changefeed.records import index_kernel as kernel
from changefeed.records.event_id import EventId
from changefeed.records.key_partitions import key_partitions
from changefeed.records.record_index import RecordIndex
from changefeed.verify.entries import Entries, Entry
from changefeed.verify.job import OffsetRange, VerifyJob
from changefeed.verify.partition_records import records_of
from changefeed.verify.record_moments import RecordMoments
from changefeed.verify.row_digests import row_digests, row_text
from changefeed.verify.tables import ComparedTable
from changefeed.verify.topic_rows import RecordFault, read_record

CREATE, UPDATE, DELETE, READ, TOMBSTONE, EVENT, WRITE = range(7)
"""The values of ``side`` of an entry: the op of its record, or EVENT if the entry is for a record's event id."""
_OPS = {"c": CREATE, "u": UPDATE, "d": DELETE, "r": READ, "w": WRITE, "tombstone": TOMBSTONE}
_SIZE = struct.Struct("<I")
_HASHES = 1 << 31
"""As the number of partitions, it makes `key_partitions` return the hash of each key."""
_SHOWN = 20

Digests = tuple[bytes, bytes]
"""The digests of a change's row before and row after; b'' for a missing row."""


def pack_digests(before: bytes, after: bytes) -> bytes:
    """Both digests as one value, for ``row`` of an entry."""
    return _SIZE.pack(len(before)) + before + after


def unpack_digests(row: bytes) -> Digests:
    """The two digests that `pack_digests` packed."""
    (size,) = _SIZE.unpack_from(row)
    return row[_SIZE.size : _SIZE.size + size], row[_SIZE.size + size :]


@dataclass
class ChainReport:
    """The faults of single records of a partition, and the records whose key's hash belongs to another partition.

    - ``malformed``: the number of records that contradict their op, key or id; ``shown`` has the first faults.
    - ``outside``: the number of records whose key's hash belongs to another partition. ``last_outside`` is the moment
      of the last one.
    - ``first_outside``: for each smaller number of partitions, the moment of the first record whose key's hash would
      belong to another partition if the topic had only that number of partitions.
    """

    topic: str
    partition: int
    malformed: int = 0
    shown: list[RecordFault] = field(default_factory=list)
    outside: int = 0
    last_outside: int = -2
    first_outside: dict[int, int] = field(default_factory=dict)

    def note(self, kind: str, text: str, offset: int) -> None:
        """Add a fault to ``shown``, up to _SHOWN of each kind."""
        if sum(1 for fault in self.shown if fault[0] == kind) < _SHOWN:
            self.shown.append((kind, text, self.partition, offset))


class ChainRecords:
    """Reads complete partitions for a deep comparison. ``counts`` has the number of partitions of each topic."""

    def __init__(self, job: VerifyJob, counts: Mapping[str, int]) -> None:
        self._job, self._counts = job, counts
        self._stream = (job.source_uuid, BinlogCoordinates.parse(job.start).base)

    def read(self, offset_range: OffsetRange) -> Iterator[Entries | ChainReport]:
        """Yield the entries of the records of ``offset_range``, then the report."""
        partition = _Partition(self._job, offset_range, self._counts[offset_range.topic], self._stream)
        moments = RecordMoments(self._stream)
        for records in records_of(self._job, offset_range):
            entries = partition.entries(records, moments.take(records)[0])
            if entries:
                yield Entries.of(entries)
        yield partition.report


class _Partition:
    def __init__(self, job: VerifyJob, offset_range: OffsetRange, count: int, stream: tuple[str, str]) -> None:
        self._job, self._offset_range, self._count, self._stream = job, offset_range, count, stream
        self.report = ChainReport(offset_range.topic, offset_range.partition)
        self._tables = job.tables.of_topic(offset_range.topic)
        self._changes = job.record_reader(next(iter(self._tables.values())))
        self._topic = job.tables.topics.index(offset_range.topic)
        self._by_key = {table.number for table in self._tables.values() if _is_by_key(job, table)}
        self._left_out = {
            table.number: frozenset(column.name for column in table.schema.columns if column.generated)
            for table in self._tables.values()
        }
        """Generated columns, whose values may depend on the session that changed the row."""

    def entries(self, records: RecordIndex, moments: Words) -> list[Entry]:
        """The entries of the next records."""
        entries: list[Entry] = []
        images: list[JsonImage | None] = []
        placed: list[int] = []
        for number in range(len(records)):
            event = EventId.parse(text := records.event_id(number))
            if event is None:
                continue  # `topic_rows` counts it as foreign
            offset, moment = int(records.offsets[number]), int(moments[number])
            where = (self._offset_range.partition, offset, moment)
            digest = hashlib.blake2b(text, digest_size=16).digest()
            entries.append(Entry(len(self._job.tables.compared), digest, EVENT, *where, self._topic, b""))
            try:
                changes = read_record(value := records.value(number), self._changes, self._tables)
            except ValueError:
                continue
            for change in changes:
                table = self._tables.get(change.table)
                if table is None or change.op not in _OPS:
                    continue
                key = records.key(number)
                if wrong := self._find_fault(change, table, key, value, event):
                    self.report.malformed += 1
                    self.report.note("malformed", f"{_key_text(key)} {wrong}", offset)
                if key is None or table.without_key:
                    continue
                if table.number in self._by_key:
                    placed.append(number)
                try:
                    key = self._changes.key(key)
                except ValueError:
                    continue
                entries.append(Entry(table.number, key, _OPS[change.op], *where, 0, b""))
                images += [self._compared_columns(table, change.before), self._compared_columns(table, change.after)]
        self._check_partitions(records, moments, np.array(placed, np.int64))
        return _with_digests(entries, images)

    def _compared_columns(self, table: ComparedTable, image: JsonImage | None) -> JsonImage | None:
        left_out = self._left_out[table.number]
        if image is None or not left_out:
            return image
        return {name: value for name, value in image.items() if name not in left_out}

    def _find_fault(
        self, change: ReadChange, table: ComparedTable, key: bytes | None, value: bytes | None, event: EventId
    ) -> str:
        """How the record contradicts its op, its key or its id; '' if it contradicts none of them."""
        if change.op == "tombstone":
            return ""
        if change.op == "r" and not event.is_read:
            return "has op r, as rows of a snapshot have, but its id is of a change in the binlog"
        has_after = change.op != "d"
        if (change.after is not None) != has_after:
            return f"has op {change.op} and {'no' if has_after else 'a'} row after the change"
        if self._changes.says_before and (change.before is not None) != (change.op in ("u", "d")):
            return f"has op {change.op} and {'no' if change.before is None else 'a'} row before the change"
        image = change.before if change.after is None else change.after
        if key is not None and image is not None and not table.without_key and self._changes.is_json:
            try:
                named: Any = orjson.loads(self._changes.key(key))
            except ValueError:
                named = None
            if isinstance(named, dict) and any(name in image and image[name] != its for name, its in named.items()):
                return "does not have the values of the record's row"
        if self._changes.envelopes is None or value is None or event.is_read or event.stream != self._stream:
            return ""
        try:
            envelopes = self._changes.envelopes(value)
        except BadRecordError:
            return "has no `source` with the position of its change"
        for envelope in envelopes:
            fits = event.position < envelope.position if envelope.ends else event.position == envelope.position
            if envelope.file != event.origin or not fits:
                return (
                    f"has position {envelope.file}:{envelope.position} in `source`, and "
                    f"{event.origin}:{event.position} in its id"
                )
        return ""

    def _check_partitions(self, records: RecordIndex, moments: Words, which: Words) -> None:
        if not len(which):
            return
        starts = np.ascontiguousarray(records.column(kernel.KEY)[which])
        sizes = np.ascontiguousarray(records.column(kernel.KEY_END)[which] - starts)
        none, hashes = np.zeros(len(which), np.int64), np.full(len(which), _HASHES, np.int64)
        key_partitions(records.data, starts, sizes, none, none.copy(), none.copy(), hashes)
        report, partition = self.report, self._offset_range.partition
        outside = np.flatnonzero(hashes % self._count != partition)
        report.outside += len(outside)
        for number in which[outside].tolist():
            report.last_outside = max(report.last_outside, int(moments[number]))
            report.note("misplaced", _key_text(records.key(number)), int(records.offsets[number]))
        for count in range(1, self._count):
            if count not in report.first_outside:
                others = np.flatnonzero(hashes % count != partition)
                if len(others):
                    report.first_outside[count] = int(moments[which[others[0]]])


def _is_by_key(job: VerifyJob, table: ComparedTable) -> bool:
    route = job.route(table.schema.database, table.schema.table)
    return route is not None and route.partition_by == "key" and not table.without_key


def _with_digests(entries: Sequence[Entry], images: Sequence[JsonImage | None]) -> list[Entry]:
    """The entries with the digests of their records' ``images``: two images for each entry that is not an EVENT."""
    if not images:
        return list(entries)
    texts = [b"" if image is None else row_text(image) for image in images]
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(sizes)
    digests = row_digests(data, np.where(sizes == 0, -1, ends - sizes), ends)
    rows = (pack_digests(digests[number], digests[number + 1]) for number in range(0, len(images), 2))
    return [entry if entry.side == EVENT else entry._replace(row=next(rows)) for entry in entries]


def _key_text(key: bytes | None) -> str:
    return "a record without a key" if key is None else f"key {key.decode('utf-8', 'replace')}"
