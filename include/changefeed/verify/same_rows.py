"""Of entries of two sides that were sorted by key: the keys of which both sides beyond doubt say the same.

What is the least bit unusual is left to who takes the entries of a key one by one.
"""

from __future__ import annotations

from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words
from changefeed.native.same_bytes import is_same
from changefeed.native.span import length, span
from changefeed.verify.row_checksums import CHECKSUM_BYTES

HAS_KEY, IS_COUNTED, BY_ITSELF = 0, 1, 2
"""Of a table: its rows are told apart by their keys; they are counted by their values; it was emptied on the way."""
UNKNOWN = -2
"""In place of a moment: there is none."""

_SERVER = 0


@inline
def _have_equal(data: Bytes, ends: Words, one: int, other: int, most: int) -> bool:
    """Whether two byte strings are equal, or their first ``most`` bytes."""
    start = ends[one - 1] if one > 0 else 0
    other_start = ends[other - 1] if other > 0 else 0
    size = min(ends[one] - start, most)
    return is_same(data, start, start + size, data, other_start, other_start + min(ends[other] - other_start, most))


@inline
def _is_plain(
    order: Words, first: int, last: int, sides: Words, parts: Words, moments: Words, lows: Words, low: int
) -> int:
    """The number of rows of the server, which come first; -1 where records changed the key since it was read, or stand
    in several partitions."""
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
    """Count in ``equal`` the server's rows that are equal, by table; write to the front of ``order`` the entries of
    all other keys, and return how many those are.

    ``order`` is that of hash, side, part and place. ``lows`` are the low moments by chunk, ``table_lows`` those of rows
    that no chunk has, ``kinds`` what is known of each table.
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
