"""What either side says of a row, as it is compared: small values that Spark sorts by key."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from changefeed.coordinates import BinlogCoordinates

BEFORE_ALL = -1
"""The moment of changes of another server than the one that is read: they were published before a failover."""


class Side(IntEnum):
    """Where a row was read; the server's comes first of those with a key."""

    SERVER = 0
    TOPIC = 1


class Entry(NamedTuple):
    """One row as a chunk of the server has it, or what one record of a topic says of a row.

    ``table`` is the number of a `JudgedTable`; ``key`` tells its rows apart. ``part`` is the chunk's number, or the
    record's partition, and ``place`` the row's number or the record's offset in it. ``moment`` orders changes along the
    binlog (see `moment_of`); rows of the server have none. ``weight`` is 1 where the row is there and 0 where it is
    gone; in tables without a key it is what the record adds to the number of such rows, 1 or -1. ``row`` is its
    `row_digests.row_digest`.
    """

    table: int
    key: bytes
    side: int
    part: int
    place: int
    moment: int
    weight: int
    row: bytes


def moment_of(coordinates: BinlogCoordinates) -> int:
    """A number that rises along a server's binlog, for coordinates of one base name."""
    return coordinates.number << 40 | coordinates.position
