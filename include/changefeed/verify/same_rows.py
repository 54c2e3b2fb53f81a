"""Finds the keys whose rows are certainly equal, among entries that are sorted by key.

The caller compares the entries of all other keys one by one.
"""

from __future__ import annotations

from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words
from changefeed.native.same_bytes import is_same
from changefeed.native.span import length, span
from changefeed.verify.row_checksums import CHECKSUM_BYTES

HAS_KEY, IS_COUNTED, BY_ITSELF = 0, 1, 2
"""Kinds of tables: keys identify rows; equal rows are counted; the topic has a TRUNCATE, so each key is left to the
caller."""
UNKNOWN = -2
"""The value of a moment that is not known."""

_SERVER = 0


@inline
def _have_equal(data: Bytes, ends: Words, one: int, other: int, most: int) -> bool:
    """Whether the first ``most`` bytes of two byte strings are equal."""
    start = ends[one - 1] if one > 0 else 0
    other_start = ends[other - 1] if other > 0 else 0
    size = min(ends[one] - start, most)
    return is_same(data, start, start + size, data, other_start, other_start + min(ends[other] - other_start, most))


@inline
def _is_plain(
    order: Words, first: int, last: int, sides: Words, parts: Words, moments: Words, lows: Words, low: int
) -> int:
    """The number of the server's rows of a key, which come first.

    It is -1 if a record may have changed the key after it was read, or if its records are in several partitions.
    """
    rows = 0
    while first + rows < last and sides[order[first + rows]] == _SERVER:
        rows += 1
    if rows > 0:
        low = lows[parts[order[first]]]
    if low == UNKNOWN:
        return -1
    for index in range(first + rows, last):
        record = order[index]
        if moments[record] >= low or parts[record] != parts[order[first + rows]]:
            return -1
    return rows


@entry(
    "int64(int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1])"
)
def same_rows(
    order: Words,
    tables: Words,
    hashes: Words,
    keys: Bytes,
    key_ends: Words,
    sides: Words,
    parts: Words,
    moments: Words,
    weights: Words,
    rows: Bytes,
    row_ends: Words,
    lows: Words,
    table_lows: Words,
    kinds: Words,
    is_sampled: int,
    equal: Words,
) -> int:
    """Count the server's equal rows by table in ``equal``, and return the number of entries of all other keys.

    The numbers of these entries are written to the front of ``order``.

    ``order`` sorts the entries by hash, side, part and place. ``lows`` are the low moments of the chunks.
    ``table_lows`` are the low moments of the tables, for keys that no chunk has. ``kinds`` are the kinds of the tables.
    """
    order, tables, hashes, keys, key_ends = span(order), span(tables), span(hashes), span(keys), span(key_ends)
    sides, parts, moments, weights = span(sides), span(parts), span(moments), span(weights)
    rows, row_ends, lows, table_lows = span(rows), span(row_ends), span(lows), span(table_lows)
    kinds, equal = span(kinds), span(equal)
    left = 0
    first = 0
    count = length(order)
    while first < count:
        entry_of = order[first]
        table = tables[entry_of]
        last = first + 1
        are_same = True
        while last < count and hashes[order[last]] == hashes[entry_of]:
            are_same = are_same and tables[order[last]] == table
            are_same = are_same and _have_equal(keys, key_ends, order[last], entry_of, 1 << 62)
            last += 1
        found = -1
        if are_same and kinds[table] != BY_ITSELF:
            found = _is_plain(order, first, last, sides, parts, moments, lows, table_lows[table])
        is_done = False
        if found == 0 and is_sampled == 1:
            is_done = True
        elif found >= 0 and kinds[table] == IS_COUNTED:
            total = 0
            for index in range(first + found, last):
                total += weights[order[index]]
            is_done = total == found
        elif found == 0:
            is_done = weights[order[last - 1]] == 0
        elif found == 1 and last - first > 1:
            record = order[last - 1]
            is_done = weights[record] == 1 and _have_equal(rows, row_ends, entry_of, record, CHECKSUM_BYTES)
        if is_done:
            equal[table] += found
        else:
            for index in range(first, last):
                order[left] = order[index]
                left += 1
        first = last
    return left
