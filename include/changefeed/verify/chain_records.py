"""What a deep comparison takes of each record of a partition: its key, its op and checksums of its images."""

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
from changefeed.verify.job import PartitionPiece, VerifyJob
from changefeed.verify.partition_records import records_of
from changefeed.verify.record_moments import RecordMoments
from changefeed.verify.row_digests import row_digests, row_text
from changefeed.verify.tables import JudgedTable
from changefeed.verify.topic_rows import Stray, read_record

CREATE, UPDATE, DELETE, READ, TOMBSTONE, EVENT = range(6)
"""What an entry is of, in place of its side: a record by its op, or the event id of any record."""
_OPS = {"c": CREATE, "u": UPDATE, "d": DELETE, "r": READ, "tombstone": TOMBSTONE}
_SIZE = struct.Struct("<I")
_HASHES = 1 << 31
"""Of so many partitions the one that a key is in is its hash."""
_SHOWN = 20

Digests = tuple[bytes, bytes]
"""Of the image before and the one after; empty where there is none."""


def packed(before: bytes, after: bytes) -> bytes:
    """Both as the ``row`` of an entry."""
    return _SIZE.pack(len(before)) + before + after


def unpacked(row: bytes) -> Digests:
    """What `packed` made."""
    (size,) = _SIZE.unpack_from(row)
    return row[_SIZE.size : _SIZE.size + size], row[_SIZE.size + size :]


@dataclass
class ChainReport:
    """What of a partition's records is wrong by itself, and how its keys fit to numbers of partitions.

    ``outside`` is how many records are in another partition than their key's hash says, the last of them at moment
    ``last_outside``. ``first_outside`` says by smaller numbers of partitions at which moment a record is the first that
    cannot have been put there when the topic had so many.
    """

    topic: str
    partition: int
    malformed: int = 0
    shown: list[Stray] = field(default_factory=list)
    outside: int = 0
    last_outside: int = -2
    first_outside: dict[int, int] = field(default_factory=dict)

    def note(self, kind: str, text: str, offset: int) -> None:
        """Keep what is the matter with one of the first records of a kind."""
        if sum(1 for stray in self.shown if stray[0] == kind) < _SHOWN:
            self.shown.append((kind, text, self.partition, offset))


class ChainRecords:
    """Reads partitions from their first record on; ``counts`` says how many partitions each topic has."""

    def __init__(self, job: VerifyJob, counts: Mapping[str, int]) -> None:
        self._job, self._counts = job, counts
        self._stream = (job.source_uuid, BinlogCoordinates.parse(job.begun).base)

    def read(self, piece: PartitionPiece) -> Iterator[Entries | ChainReport]:
        """Entries of its records, then the report."""
        partition = _Partition(self._job, piece, self._counts[piece.topic], self._stream)
        moments = RecordMoments(self._stream)
        for records in records_of(self._job, piece):
            entries = partition.entries(records, moments.take(records)[0])
            if entries:
                yield Entries.of(entries)
        yield partition.report


class _Partition:
    def __init__(self, job: VerifyJob, piece: PartitionPiece, count: int, stream: tuple[str, str]) -> None:
        self._job, self._piece, self._count, self._stream = job, piece, count, stream
        self.report = ChainReport(piece.topic, piece.partition)
        self._tables = job.tables.of_topic(piece.topic)
        self._changes = job.record_reader(next(iter(self._tables.values())))
        self._topic = job.tables.topics.index(piece.topic)
        self._by_key = {table.number for table in self._tables.values() if _is_by_key(job, table)}
        self._left_out = {
            table.number: frozenset(column.name for column in table.schema.columns if column.generated)
            for table in self._tables.values()
        }
        """Generated columns: what they are may depend on the session that changed the row."""

    def entries(self, records: RecordIndex, moments: Words) -> list[Entry]:
        """Those of the next records."""
        made: list[Entry] = []
        images: list[JsonImage | None] = []
        placed: list[int] = []
        for number in range(len(records)):
            event = EventId.parse(text := records.event_id(number))
            if event is None:
                continue  # counted as foreign by who reads the rows
            offset, moment = int(records.offsets[number]), int(moments[number])
            where = (self._piece.partition, offset, moment)
            digest = hashlib.blake2b(text, digest_size=16).digest()
            made.append(Entry(len(self._job.tables.judged), digest, EVENT, *where, self._topic, b""))
            try:
                changes = read_record(value := records.value(number), self._changes, self._tables)
            except ValueError:
                continue
            for change in changes:
                table = self._tables.get(change.table)
                if table is None or change.op not in _OPS:
                    continue
                key = records.key(number)
                if wrong := self._wrong(change, table, key, value, event):
                    self.report.malformed += 1
                    self.report.note("malformed", f"{_text(key)} {wrong}", offset)
                if key is None or table.without_key:
                    continue
                if table.number in self._by_key:
                    placed.append(number)
                try:
                    key = self._changes.key(key)
                except ValueError:
                    continue
                made.append(Entry(table.number, key, _OPS[change.op], *where, 0, b""))
                images += [self._compared(table, change.before), self._compared(table, change.after)]
        self._look_at_partitions(records, moments, np.array(placed, np.int64))
        return _with_digests(made, images)

    def _compared(self, table: JudgedTable, image: JsonImage | None) -> JsonImage | None:
        left_out = self._left_out[table.number]
        if image is None or not left_out:
            return image
        return {name: value for name, value in image.items() if name not in left_out}

    def _wrong(
        self, change: ReadChange, table: JudgedTable, key: bytes | None, value: bytes | None, event: EventId
    ) -> str:
        """What of a record is not as its op, its key and its id say; '' where all is."""
        if change.op == "tombstone":
            return ""
        has_after = change.op != "d"
        if (change.after is not None) != has_after:
            return f"is of op {change.op} and has {'no' if has_after else 'a'} row after the change"
        if self._changes.says_before and (change.before is not None) != (change.op in ("u", "d")):
            return f"is of op {change.op} and has {'no' if change.before is None else 'a'} row before the change"
        image = change.before if change.after is None else change.after
        if key is not None and image is not None and not table.without_key and self._changes.is_json:
            try:
                named: Any = orjson.loads(self._changes.key(key))
            except ValueError:
                named = None
            if isinstance(named, dict) and any(name in image and image[name] != its for name, its in named.items()):
                return "is not the key of the record's row"
        if self._changes.envelopes is None or value is None or event.is_read or event.stream != self._stream:
            return ""
        try:
            envelopes = self._changes.envelopes(value)
        except BadRecordError:
            return "has no `source` that says where its change is"
        for said in envelopes:
            if (said.file, said.position) != (event.origin, event.position):
                return f"says {said.file}:{said.position} in `source`, and {event.origin}:{event.position} in its id"
        return ""

    def _look_at_partitions(self, records: RecordIndex, moments: Words, which: Words) -> None:
        if not len(which):
            return
        starts = np.ascontiguousarray(records.column(kernel.KEY)[which])
        sizes = np.ascontiguousarray(records.column(kernel.KEY_END)[which] - starts)
        none, hashes = np.zeros(len(which), np.int64), np.full(len(which), _HASHES, np.int64)
        key_partitions(records.data, starts, sizes, none, none.copy(), none.copy(), hashes)
        report, partition = self.report, self._piece.partition
        outside = np.flatnonzero(hashes % self._count != partition)
        report.outside += len(outside)
        for number in which[outside].tolist():
            report.last_outside = max(report.last_outside, int(moments[number]))
            report.note("misplaced", _text(records.key(number)), int(records.offsets[number]))
        for count in range(1, self._count):
            if count not in report.first_outside:
                others = np.flatnonzero(hashes % count != partition)
                if len(others):
                    report.first_outside[count] = int(moments[which[others[0]]])


def _is_by_key(job: VerifyJob, table: JudgedTable) -> bool:
    route = job.route(table.schema.database, table.schema.table)
    return route is not None and route.partition_by == "key" and not table.without_key


def _with_digests(entries: Sequence[Entry], images: Sequence[JsonImage | None]) -> list[Entry]:
    """The entries of records with checksums of their ``images``, two for each."""
    if not images:
        return list(entries)
    texts = [b"" if image is None else row_text(image) for image in images]
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(sizes)
    digests = row_digests(data, np.where(sizes == 0, -1, ends - sizes), ends)
    rows = (packed(digests[number], digests[number + 1]) for number in range(0, len(images), 2))
    return [entry if entry.side == EVENT else entry._replace(row=next(rows)) for entry in entries]


def _text(key: bytes | None) -> str:
    return "a record without a key" if key is None else f"key {key.decode('utf-8', 'replace')}"
