"""Checksums of rows by the text that a record has of them, of one row or of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from changefeed.native.memory import Bytes, Words
from changefeed.verify.row_checksums import CELL_BYTES, CHECKSUM_BYTES, row_checksums
from changefeed.verify.strings import Strings

Row = Mapping[str, Any]
"""Column name -> value, as the record's JSON has it."""


def row_digests(data: Bytes, starts: Words, ends: Words) -> Strings:
    """The digest of each row ``data[start:end]``, a JSON object; an empty one for a start below 0.

    A digest is a checksum of the row's values that are not NULL and their columns, then one of 32 bits for the name and
    the value of each column. So a row that was published before its table got a column still has the checksum of the
    row as it is now where that column is NULL, and can be compared in the columns that it has where it is not.

    Raises ValueError for what is no JSON object.
    """
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    sizes = np.where(starts < 0, 0, ends - starts)
    out = np.empty(CHECKSUM_BYTES * len(starts) + 2 * int(sizes.sum()), np.uint8)
    out_ends = np.empty(len(starts), np.int64)
    if row_checksums(data, starts, ends, out, out_ends) < 0:
        raise ValueError("a row is no JSON object")
    return Strings(out[: int(out_ends[-1]) if len(out_ends) else 0], out_ends)


def row_digest(row: Row) -> bytes:
    """The digest of one row, by the text that orjson has for its values."""
    text = row_text(row)
    data = np.frombuffer(bytearray(text), np.uint8)
    return row_digests(data, np.zeros(1, np.int64), np.array([len(text)], np.int64))[0]


def row_text(row: Row) -> bytes:
    """The text of a row whose digest is that of its values."""
    flat = {name: _text(value) if isinstance(value, dict | list) else value for name, value in row.items()}
    return orjson.dumps(flat)


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def is_same(one: bytes, other: bytes) -> bool:
    """Whether two digests are of the same values."""
    return one[:CHECKSUM_BYTES] == other[:CHECKSUM_BYTES]


def is_same_in_part(one: bytes, other: bytes) -> bool:
    """Whether two digests are of rows with other columns, that have the same values in those that both have."""
    mine, its = dict(_cells(one)), dict(_cells(other))
    both = mine.keys() & its.keys()
    return mine.keys() != its.keys() and bool(both) and all(mine[name] == its[name] for name in both)


def contradicts(one: bytes, other: bytes) -> bool:
    """Whether two digests are of rows with other values in a column that both have."""
    if is_same(one, other):
        return False
    mine, its = dict(_cells(one)), dict(_cells(other))
    return any(mine[name] != its[name] for name in mine.keys() & its.keys())


def values_key(digest: bytes) -> bytes:
    """What tells rows of a table without a key apart: their values."""
    return digest[:CHECKSUM_BYTES]


def _cells(digest: bytes) -> Iterator[tuple[bytes, bytes]]:
    for at in range(CHECKSUM_BYTES, len(digest), CELL_BYTES):
        yield digest[at : at + CELL_BYTES // 2], digest[at + CELL_BYTES // 2 : at + CELL_BYTES]
