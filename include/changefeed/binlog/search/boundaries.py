"""Reads the commit boundaries of a binlog file, which are the possible checkpoints, with the time and GTID after each.

This module reads them one by one, without a kernel, for callers that need only the first boundaries, as each plan does.
For many boundaries use `file_ranges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from changefeed.binlog.events.framing import (
    CHECKSUM_SIZE,
    HEADER,
    HEADER_SIZE,
    OPENING,
    DamagedEvent,
    EventType,
    FormatDescription,
    complete_events,
    is_in_file,
)
from changefeed.binlog.events.gtids import gtid_of
from changefeed.errors import BinlogFormatError

_BETWEEN = frozenset(
    {
        EventType.FORMAT_DESCRIPTION,
        EventType.PREVIOUS_GTIDS,
        EventType.MARIADB_GTID_LIST,
        EventType.MARIADB_BINLOG_CHECKPOINT,
        EventType.ROTATE,
        EventType.STOP,
    }
)


@dataclass(frozen=True)
class Boundary:
    """A position between two transactions of a file.

    ``gtid`` is the GTID of the transaction that begins here, or ''.
    """

    position: int
    ts_seconds: int
    opens: bool
    gtid: str = ""


def boundaries(chunks: Iterable[bytes | bytearray | memoryview], file: str, start: int, end: int) -> Iterator[Boundary]:
    """Yield the commit boundaries in ``[start, end)``, in order; ``start`` must be one of them.

    ``chunks`` are the bytes of a dump or a file from ``start`` on, in complete events; a dump begins with artificial
    events. Raises BinlogFormatError for bytes that are not a sequence of events.
    """
    position, checksum = start, 0
    try:
        for event in complete_events(chunks, end - start):
            seconds, kind, server_id, size, next_position, flags = HEADER.unpack_from(event)
            if kind == EventType.FORMAT_DESCRIPTION:
                checksum = CHECKSUM_SIZE * FormatDescription.parse(bytes(event[HEADER_SIZE:])).checksum
            if not is_in_file(kind, next_position, flags, position):
                continue
            if position >= end:
                return
            if kind in OPENING:
                body = bytes(event[HEADER_SIZE : len(event) - checksum])
                yield Boundary(position, seconds, True, gtid_of(kind, server_id, body))
            elif kind in _BETWEEN:
                yield Boundary(position, seconds, False)
            position += size
    except DamagedEvent as damage:
        raise BinlogFormatError(f"binlog {file}:{position}: {damage}") from damage
