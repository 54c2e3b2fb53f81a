"""Commit boundaries by the kernel against those read one by one, over random events of both servers."""

from __future__ import annotations

import pytest
from binlog_events import FILE, Event, description, rows, written
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.binlog.events.framing import EventType
from changefeed.binlog.events.gtids import GtidRuns
from changefeed.binlog.search.boundaries import boundaries
from changefeed.binlog.search.file_ranges import FileRange, file_ranges
from changefeed.errors import BinlogFormatError
from changefeed.model.gtid import GtidSet

BEFORE = {"mysql": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9", "mariadb": "0-1-2,7-3-5"}
UUIDS = (bytes(range(16)), bytes(range(100, 116)))


def packed(number: int) -> bytes:
    """A number of MySQL's serialization, in one byte or two."""
    return bytes([number << 1]) if number < 128 else bytes([(number & 63) << 2 | 1, number >> 6])


def tagged(source: bytes, tag: str, number: int) -> Event:
    words = b"".join(map(packed, source))
    text = packed(len(tag)) + tag.encode()
    return Event(
        EventType.GTID_TAGGED,
        packed(1) + packed(9) + packed(0) + packed(0) + packed(0) + packed(1) + words + packed(2) + packed(2 * number)
        + packed(3) + text,
    )  # fmt: skip


@st.composite
def openings(draw: st.DrawFn, server: str) -> Event:
    number = draw(st.integers(1, 12))
    if server == "mariadb":
        domain = draw(st.sampled_from([0, 7]))
        body = number.to_bytes(8, "little") + domain.to_bytes(4, "little") + b"\0" + bytes(6)
        return Event(EventType.MARIADB_GTID, body)
    source = draw(st.sampled_from(UUIDS))
    return draw(
        st.sampled_from(
            [
                Event(EventType.GTID, b"\0" + source + number.to_bytes(8, "little")),
                Event(EventType.GTID, b"\0" + source + number.to_bytes(8, "little")),
                Event(EventType.ANONYMOUS_GTID, bytes(25)),
                tagged(source, "blue", number),
                tagged(source, "", number),
            ]
        )
    )


BETWEEN = [
    Event(EventType.PREVIOUS_GTIDS, bytes(8)),
    Event(EventType.MARIADB_GTID_LIST, bytes(4)),
    Event(EventType.MARIADB_BINLOG_CHECKPOINT, bytes(9)),
    Event(EventType.ROTATE, bytes(8) + b"bin.000002"),
    Event(EventType.STOP, b""),
    Event(EventType.ROTATE, bytes(8) + b"bin.000001", flags=0x20),
    Event(EventType.HEARTBEAT, b"bin.000001"),
]
OTHERS = [rows(30, ends=True), Event(EventType.XID, bytes(8)), Event(EventType.TABLE_MAP, bytes(20))]
FILES = st.sampled_from(["mysql", "mariadb"]).flatmap(
    lambda server: st.tuples(
        st.just(server),
        st.lists(st.one_of(openings(server), openings(server), st.sampled_from(BETWEEN), st.sampled_from(OTHERS))),
    )
)
EXPECTED = {
    "mysql": [
        "",
        "00010203-0405-0607-0809-0a0b0c0d0e0f:2-5:8-9",
        "00010203-0405-0607-0809-0a0b0c0d0e0f:blue:1-4:7,64656667-6869-6a6b-6c6d-6e6f70717273:3",
    ],
    "mariadb": ["", "0-1-4", "7-9-11"],
}


def bytes_of(events: list[Event]) -> bytes:
    """The events as a dump has them: artificial ones are not part of the file."""
    data, position = b"", 4
    for event in [description(), *events]:
        data += event.bytes_at(position)
        if event.flags != 0x20 and event.kind != EventType.HEARTBEAT:
            position += len(event.bytes_at(position))
    return data


def end_of(events: list[Event]) -> int:
    return len(written([each for each in events if each.flags != 0x20 and each.kind != EventType.HEARTBEAT])) + 4


@given(FILES, st.integers(1, 400))
@settings(max_examples=200, deadline=None)
def test_boundaries_and_gtids_equal_those_read_one_by_one(file: tuple[str, list[Event]], chunk_bytes: int) -> None:
    server, events = file
    data, end = bytes_of(events), end_of([description(), *events])
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    expected = list(boundaries(chunks, FILE, 4, end))
    before = GtidRuns(BEFORE[server])
    sets = []
    for boundary in expected:
        sets.append(before.text())
        before.add_text(boundary.gtid)
    read: list[FileRange] = list(file_ranges(chunks, FILE, 4, end, BEFORE[server]))
    found = [
        (int(position), int(seconds), bool(opens))
        for each in read
        for position, seconds, opens in zip(each.positions, each.seconds, each.opens, strict=True)
    ]
    assert found == [(each.position, each.ts_seconds, each.opens) for each in expected]
    assert [each.gtids_before(index) for each in read for index in range(len(each.positions))] == sets
    for text in EXPECTED[server]:
        gtids = GtidSet.parse(text)
        contained = [bool(each) for span in read for each in span.gtids.contained_in(gtids)]
        assert contained == [bool(one.gtid) and gtids.contains(GtidSet.parse(one.gtid)) for one in expected]
    assert [bool(each) for span in read for each in span.gtids.present] == [bool(one.gtid) for one in expected]


def test_boundaries_before_damage_are_returned_and_damage_has_coordinates() -> None:
    good = [description(), Event(EventType.GTID, b"\0" + UUIDS[0] + (1).to_bytes(8, "little")), OTHERS[1]]
    data = written(good)
    reading = file_ranges([data + b"\1" * 30], FILE, 4, 5000, "")
    assert [int(position) for _ in range(2) for position in next(reading).positions] == [4, 4 + len(written(good[:1]))]
    with pytest.raises(BinlogFormatError, match=f"{FILE}:{4 + len(data)}: "):
        next(reading)
