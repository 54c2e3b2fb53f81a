"""Writes MariaDB's UUID, INET4 and INET6 values as JSON strings.

Source: https://mariadb.com/kb/en/uuid-data-type/, https://mariadb.com/kb/en/inet6/
"""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.native.compiled import inline
from changefeed.native.encoding import put_hex
from changefeed.native.memory import Bytes, put8, put16, u8, u16
from changefeed.native.numbers import put_number


@inline
def put_address(out: Bytes, at: int, data: Bytes, start: int, size: int, kind: int, scratch: Bytes) -> int:
    """Write a UUID, INET4 or INET6, whose trailing zero bytes are not in the binlog; returns the new end.

    INET6 has the server's format: the longest run of zero groups, even a single group, is `::`, and IPv4-mapped
    addresses have dots.
    """
    for index in range(16):
        put8(scratch, index, u8(data, start + index) if index < size else 0)
    put8(out, at, 34)
    at += 1
    if kind == layout.UUID:
        for index in range(16):
            if index == 4 or index == 6 or index == 8 or index == 10:
                put8(out, at, 45)
                at += 1
            at = put_hex(out, at, scratch, index, index + 1)
    elif kind == layout.INET4:
        at = _put_dotted(out, at, scratch, 0)
    else:
        at = _put_inet6(out, at, scratch)
    put8(out, at, 34)
    return at + 1


@inline
def _put_dotted(out: Bytes, at: int, data: Bytes, start: int) -> int:
    for index in range(4):
        if index > 0:
            put8(out, at, 46)
            at += 1
        at = put_number(out, at, u8(data, start + index))
    return at


@inline
def _put_inet6(out: Bytes, at: int, data: Bytes) -> int:
    best = -1
    best_size = 0
    run = 0
    for group in range(8):
        if u16(data, 2 * group) == 0:
            run += 1
            if run > best_size:
                best_size = run
                best = group - run + 1
        else:
            run = 0
    dotted = best == 0 and (best_size == 6 or (best_size == 5 and u16(data, 10) == 0xFFFF))
    group = 0
    while group < 8:
        if group == best:
            put16(out, at, 0x3A3A)
            at += 2
            group += best_size
            continue
        if (group > 0 and group != best + best_size) or (group > 0 and best < 0):
            put8(out, at, 58)
            at += 1
        if dotted and group == 6:
            return _put_dotted(out, at, data, 12)
        value = u8(data, 2 * group) << 8 | u8(data, 2 * group + 1)
        begun = False
        for shift in range(12, -4, -4):
            digit = (value >> shift) & 15
            if digit > 0 or begun or shift == 0:
                begun = True
                put8(out, at, 48 + digit if digit < 10 else 87 + digit)
                at += 1
        group += 1
    return at
