"""Which events of a dump are in the file."""

from __future__ import annotations

import pytest

from changefeed.binlog.events.framing import ARTIFICIAL_FLAG, HEADER, IGNORABLE_FLAG, EventType
from changefeed.source.mysql.packets import PacketSplitter

AFTER = HEADER.pack(1_800_000_000, EventType.XID, 1, HEADER.size + 12, 500, 0) + bytes(12)


def kept(kind: int, next_position: int, flags: int) -> bool:
    """Whether an event before another one is passed on."""
    event = HEADER.pack(1_800_000_000, kind, 1, HEADER.size + 8, next_position, flags) + bytes(8)
    sent = b"".join((1 + len(part)).to_bytes(3, "little") + b"\1\0" + part for part in (event, AFTER))
    splitter = PacketSplitter()
    splitter.room()[: len(sent)] = sent
    found = bytes(splitter.feed(len(sent)))
    assert found in (AFTER, event + AFTER)
    return found != AFTER


@pytest.mark.parametrize(
    ("kind", "next_position", "flags", "in_file"),
    [
        (EventType.ROTATE, 0, ARTIFICIAL_FLAG, False),
        (EventType.ROTATE, 900, 0, True),
        (EventType.HEARTBEAT, 900, 0, False),
        (EventType.MARIADB_GTID_LIST, 0, ARTIFICIAL_FLAG, False),
        (EventType.MARIADB_START_ENCRYPTION, 0, IGNORABLE_FLAG, False),
        (EventType.MARIADB_START_ENCRYPTION, 296, IGNORABLE_FLAG, True),
        (EventType.XID, 0, 0, True),
    ],
)
def test_what_a_server_makes_up_is_left_out(kind: int, next_position: int, flags: int, in_file: bool) -> None:
    assert kept(kind, next_position, flags) == in_file
