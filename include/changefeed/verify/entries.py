"""Entries: rows of the server and of topics in the form that is compared, as single entries or as columns of many."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from changefeed.native.memory import Words
from changefeed.verify.row_checksums import key_checksums
from changefeed.verify.strings import Strings

BEFORE_ALL = -1
"""The moment of changes of another server, which were published before a failover."""


class Side(IntEnum):
    """Where a row was read. Among the entries of a key, the entries of the server come first."""

    SERVER = 0
    TOPIC = 1


class Entry(NamedTuple):
    """A row in a chunk of the server, or a row image in a record of a topic.

    - ``table``: the number of a `ComparedTable`.
    - ``key``: identifies the row in its table.
    - ``part``: the number of the chunk, or the record's partition.
    - ``place``: the row's number in the chunk, or the record's offset.
    - ``moment``: orders changes along the binlog (see `moment_of`); 0 for rows of the server.
    - ``weight``: 1 if the row exists, 0 if it was deleted. In tables without a key: 1 if the record adds a row, -1 if
      it removes a row.
    - ``row``: the digest of the row (`row_digests.row_digest`).
    """

    table: int
    key: bytes
    side: int
    part: int
    place: int
    moment: int
    weight: int
    row: bytes


_SIZES = struct.Struct("<QQQ")
_NUMBERS = ("tables", "sides", "parts", "places", "moments", "weights", "hashes")
ENTRY_BYTES = 100
"""The approximate size of an entry without the digests of its columns, in bytes."""
_TABLE_SEED = 0x1E3779B97F4A7C15
"""Makes the checksums of equal keys of different tables differ."""


@dataclass(frozen=True)
class Entries:
    """Many entries: a column for each field of `Entry`, and ``hashes`` with the checksum of each key and its table."""

    tables: Words
    keys: Strings
    sides: Words
    parts: Words
    places: Words
    moments: Words
    weights: Words
    rows: Strings
    hashes: Words

    @classmethod
    def of_columns(
        cls,
        table: Words | int,
        keys: Strings,
        side: int,
        part: int,
        places: Words,
        moments: Words | int,
        weights: Words | int,
        rows: Strings,
    ) -> Entries:
        """Entries from columns. If an argument is a number, it is the value of all entries."""
        count = len(keys)
        tables, moments, weights = (_column(each, count) for each in (table, moments, weights))
        sides, parts = _column(side, count), _column(part, count)
        return cls(tables, keys, sides, parts, _column(places, count), moments, weights, rows, _hashes(tables, keys))

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Entries:
        """Entries from a list."""
        tables, keys, sides, parts, places, moments, weights, rows = zip(*entries, strict=True) if entries else [()] * 8
        named = Strings.of(keys)
        columns = dict(zip(_NUMBERS, (tables, sides, parts, places, moments, weights), strict=False))
        numbers = {name: np.array(column, np.int64) for name, column in columns.items()}
        return cls(**numbers, keys=named, rows=Strings.of(rows), hashes=_hashes(numbers["tables"], named))

    @classmethod
    def concat(cls, many: Sequence[Entries]) -> Entries:
        """All of ``many`` in their order; there must be at least one."""
        if len(many) == 1:
            return many[0]
        columns = {name: np.concatenate([getattr(each, name) for each in many]) for name in _NUMBERS}
        keys, rows = Strings.concat([each.keys for each in many]), Strings.concat([each.rows for each in many])
        return cls(**columns, keys=keys, rows=rows)

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def size_bytes(self) -> int:
        """The size of the entries in memory."""
        return 8 * (len(_NUMBERS) + 2) * len(self) + len(self.keys.data) + len(self.rows.data)

    def take(self, index: Words) -> Entries:
        """The entries at ``index``."""
        columns: dict[str, Any] = {field.name: _take(getattr(self, field.name), index) for field in fields(self)}
        return Entries(**columns)

    def buckets(self, count: int) -> Iterator[tuple[int, Entries]]:
        """Yield the number and the entries of each bucket that is not empty, of ``count`` buckets.

        All entries of a key are in one bucket, in their original order.
        """
        numbers = (self.hashes.view(np.uint64) % np.uint64(count)).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        at = np.searchsorted(numbers[order], np.arange(count + 1))
        for number in range(count):
            if at[number] < at[number + 1]:
                yield number, self.take(order[at[number] : at[number + 1]])

    def each(self, index: Iterable[int] | None = None) -> Iterator[Entry]:
        """Yield the entries at ``index``, or all entries, one by one."""
        for at in range(len(self)) if index is None else index:
            yield Entry(
                int(self.tables[at]),
                self.keys[at],
                int(self.sides[at]),
                int(self.parts[at]),
                int(self.places[at]),
                int(self.moments[at]),
                int(self.weights[at]),
                self.rows[at],
            )

    def to_bytes(self) -> bytes:
        """The entries as bytes, little-endian."""
        arrays = [getattr(self, name) for name in _NUMBERS]
        arrays += [self.keys.ends, self.rows.ends, self.keys.data, self.rows.data]
        sizes = _SIZES.pack(len(self), len(self.keys.data), len(self.rows.data))
        return b"".join([sizes, *(np.ascontiguousarray(array).tobytes() for array in arrays)])

    @classmethod
    def from_bytes(cls, data: bytearray) -> Entries:
        """The entries that `to_bytes` encoded. ``data`` is a bytearray, because kernels take only writable arrays."""
        count, key_bytes, row_bytes = _SIZES.unpack_from(data)
        words = np.frombuffer(data, np.int64, (len(_NUMBERS) + 2) * count, _SIZES.size)
        *numbers, key_ends, row_ends = words.reshape(len(_NUMBERS) + 2, count)
        at = _SIZES.size + 8 * len(words)
        keys = Strings(np.frombuffer(data, np.uint8, key_bytes, at), key_ends)
        rows = Strings(np.frombuffer(data, np.uint8, row_bytes, at + key_bytes), row_ends)
        return cls(**dict(zip(_NUMBERS, numbers, strict=True)), keys=keys, rows=rows)


def _take(column: Words | Strings, index: Words) -> Words | Strings:
    return column.take(index) if isinstance(column, Strings) else column[index]


def _column(value: Words | int, count: int) -> Words:
    return np.full(count, value, np.int64) if isinstance(value, int) else np.ascontiguousarray(value, np.int64)


def _hashes(tables: Words, keys: Strings) -> Words:
    hashes = np.empty(len(keys), np.int64)
    key_checksums(keys.data, keys.starts, keys.ends, tables * np.int64(_TABLE_SEED), hashes)
    return hashes
