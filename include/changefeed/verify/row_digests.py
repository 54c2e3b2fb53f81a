"""Computes the digests of rows from their JSON text, for one row or many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from changefeed.native.memory import Bytes, Words
from changefeed.verify.row_checksums import CELL_BYTES, CHECKSUM_BYTES, row_checksums
from changefeed.verify.strings import Strings

Row = Mapping[str, Any]
"""Column name -> value, as in the record's JSON."""


def row_digests(data: Bytes, starts: Words, ends: Words) -> Strings:
    """The digest of each row ``data[start:end]``, a JSON object; an empty digest for a start below 0.

    A digest is a checksum of all columns whose values are not NULL, then for each column a 32-bit checksum of its name
    and one of its value. If a column is added after a row was published, the first checksum changes only if the
    column's value is not NULL. If it changes, only the columns of the row's record are compared.

    Raises ValueError if a row is not a JSON object.
    """
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    sizes = np.where(starts < 0, 0, ends - starts)
    out = np.empty(CHECKSUM_BYTES * len(starts) + 2 * int(sizes.sum()), np.uint8)
    out_ends = np.empty(len(starts), np.int64)
    if row_checksums(data, starts, ends, out, out_ends) < 0:
        raise ValueError("a row is not a JSON object")
    return Strings(out[: int(out_ends[-1]) if len(out_ends) else 0], out_ends)


def row_digest(row: Row) -> bytes:
    """The digest of one row, whose values orjson encodes."""
    text = row_text(row)
    data = np.frombuffer(bytearray(text), np.uint8)
    return row_digests(data, np.zeros(1, np.int64), np.array([len(text)], np.int64))[0]


def row_text(row: Row) -> bytes:
    """The row as JSON text. The keys of nested values are sorted, so that equal rows have equal texts."""
    flat = {name: _text(value) if isinstance(value, dict | list) else value for name, value in row.items()}
    return orjson.dumps(flat)


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def is_same(one: bytes, other: bytes) -> bool:
    """Whether two digests are of rows with the same values."""
    return one[:CHECKSUM_BYTES] == other[:CHECKSUM_BYTES]


def is_same_in_part(one: bytes, other: bytes) -> bool:
    """Whether two digests are of rows with different columns and the same values in their common columns."""
    mine, its = dict(_cells(one)), dict(_cells(other))
    both = mine.keys() & its.keys()
    return mine.keys() != its.keys() and bool(both) and all(mine[name] == its[name] for name in both)


def contradicts(one: bytes, other: bytes) -> bool:
    """Whether two digests are of rows with different values in a common column."""
    if is_same(one, other):
        return False
    mine, its = dict(_cells(one)), dict(_cells(other))
    return any(mine[name] != its[name] for name in mine.keys() & its.keys())


def values_key(digest: bytes) -> bytes:
    """The checksum of all values, which is the key of a row in a table without a key."""
    return digest[:CHECKSUM_BYTES]


def _cells(digest: bytes) -> Iterator[tuple[bytes, bytes]]:
    for at in range(CHECKSUM_BYTES, len(digest), CELL_BYTES):
        yield digest[at : at + CELL_BYTES // 2], digest[at + CELL_BYTES // 2 : at + CELL_BYTES]
