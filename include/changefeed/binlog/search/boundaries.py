"""Commit boundaries of a binlog file: where a checkpoint may stand, with the time and the GTID that follow it.

One by one, for whoever needs the first ones only, as each plan does: no kernel is loaded for that. `file_ranges` is for
those who read on.
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
    stands_in_file,
    whole_events,
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
    """Between two transactions of a file. ``gtid`` is of the transaction that begins here, '' where none does."""

    position: int
    ts_seconds: int
    opens: bool
    gtid: str = ""


def boundaries(chunks: Iterable[bytes | bytearray | memoryview], file: str, start: int, end: int) -> Iterator[Boundary]:
    """The commit boundaries in ``[start, end)``, in order; ``start`` must be one of them.

    ``chunks`` are the bytes of whole events as a dump or a file gives them, from ``start`` on; those of a dump begin
    with events that the server made up. Raises BinlogFormatError for bytes that cannot be followed.
    """
    position, checksum = start, 0
    try:
        for event in whole_events(chunks, end - start):
            seconds, kind, server_id, size, next_position, flags = HEADER.unpack_from(event)
            if kind == EventType.FORMAT_DESCRIPTION:
                checksum = CHECKSUM_SIZE * FormatDescription.parse(bytes(event[HEADER_SIZE:])).checksum
            if not stands_in_file(kind, next_position, flags, position):
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
