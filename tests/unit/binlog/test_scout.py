"""The scout against a plain model of it, over random events, cut into chunks anywhere; and over damaged ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.binlog.events.framing import HEADER, EventType
from changefeed.binlog.search.scout import scout
from changefeed.errors import BinlogFormatError
from changefeed.window import ANONYMOUS, Slice

UUID = bytes(range(16))
GTID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f:{}"


@dataclass(frozen=True)
class Event:
    kind: int
    body: bytes
    flags: int = 0

    def bytes_at(self, position: int) -> bytes:
        size = HEADER.size + len(self.body)
        return HEADER.pack(7, self.kind, 1, size, (position + size) % 2**32, self.flags) + self.body


def description() -> Event:
    body = (4).to_bytes(2, "little") + b"5.5.0".ljust(50, b"\0") + bytes(4) + bytes([HEADER.size]) + bytes(27)
    return Event(EventType.FORMAT_DESCRIPTION, body)


def query(sql: str, variables: int = 0) -> Event:
    head = bytes(8) + b"\x01" + bytes(2) + variables.to_bytes(2, "little")
    # A status variable that has a size of its own, as long as is wanted: Q_TIME_ZONE_CODE.
    words = b"\x05" + bytes([variables - 2]) + b"z" * (variables - 2) if variables else b""
    return Event(EventType.QUERY, head + words + b"d\0" + sql.encode())


def gtid(number: int) -> Event:
    return Event(EventType.GTID, b"\0" + UUID + number.to_bytes(8, "little"))


def rows(size: int, *, ends: bool) -> Event:
    return Event(EventType.WRITE_ROWS, bytes(6) + bytes([ends]) + bytes(size))


@st.composite
def transactions(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        if draw(st.booleans()):
            events.append(gtid(number))
        if draw(st.integers(0, 5)) == 0:
            events.append(query("CREATE TABLE t (a INT)", draw(st.sampled_from([0, 9]))))
            continue
        events.append(query("BEGIN", draw(st.sampled_from([0, 2, 9]))))
        for _ in range(draw(st.integers(0, 6))):
            events.append(rows(draw(st.integers(1, 90)), ends=draw(st.booleans())))
            if draw(st.integers(0, 9)) == 0:
                events.append(query("SAVEPOINT `s`"))
        xid = Event(EventType.XID, bytes(8))
        events.append(draw(st.sampled_from([xid, query("COMMIT"), query("ROLLBACK")])))
    return events


def modelled(events: list[Event], slice_bytes: int) -> tuple[list[Slice], list[int]]:
    """The slices of ``events``, and the positions of statements: event by event, as the scout is described."""
    slices: list[Slice] = []
    statements: list[int] = []
    position = begin = 4
    begin_gtid, now, opened, cuttable = "", "", False, False

    def cut(text: str) -> None:
        nonlocal begin, begin_gtid
        if position - begin >= slice_bytes:
            slices.append(Slice(len(slices), "bin.000001", begin, position, begin_gtid))
            begin, begin_gtid = position, text

    for event in events:
        sql = event.body.rpartition(b"d\0")[2].decode("latin-1") if event.kind == EventType.QUERY else ""
        if event.kind == EventType.GTID:
            cut("")
            now, opened, cuttable = GTID_TEXT.format(int.from_bytes(event.body[17:25], "little")), True, False
        elif sql == "BEGIN":
            if not opened:
                cut("")
            cuttable = True
        elif sql in ("COMMIT", "ROLLBACK") or event.kind == EventType.XID:
            opened = cuttable = False
        elif sql.startswith("CREATE"):
            statements.append(position)
        position += HEADER.size + len(event.body)
        if event.kind == EventType.WRITE_ROWS and cuttable and event.body[6]:
            cut(now or ANONYMOUS)
    if begin < position:
        slices.append(Slice(len(slices), "bin.000001", begin, position, begin_gtid))
    return slices, statements


def written(events: list[Event]) -> bytes:
    data = b""
    for event in events:
        data += event.bytes_at(4 + len(data))
    return data


@given(transactions(), st.integers(1, 600), st.integers(1, 500))
@settings(max_examples=150, deadline=None)
def test_a_scout_cuts_where_its_description_says_whatever_the_chunks(
    events: list[Event], slice_bytes: int, chunk_bytes: int
) -> None:
    events = [description(), *events]
    data = written(events)
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    scouting = scout(chunks, Slice(0, "bin.000001", 4, 4 + len(data)), slice_bytes)
    slices, statements = modelled(events, slice_bytes)
    assert list(scouting.slices) == slices
    assert [statement.position for statement in scouting.statements] == statements
    assert scouting.events == len(events)


@given(transactions(), st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_events_are_an_error_or_slices_that_hold_every_byte(events: list[Event], data: st.DataObject) -> None:
    damaged = bytearray(written([description(), *events]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    piece = Slice(0, "bin.000001", 4, 4 + len(damaged))
    try:
        slices = scout([bytes(damaged)], piece, 50).slices
    except BinlogFormatError:
        return
    assert [(slices[0].start, slices[-1].end)] == [(piece.start, piece.end)]
    assert [one.start for one in slices[1:]] == [one.end for one in slices[:-1]]


@pytest.mark.parametrize("missing", [1, 18, 30])
def test_a_file_that_ends_early_is_an_error(missing: int) -> None:
    data = written([description(), gtid(1), query("BEGIN"), rows(20, ends=True)])
    with pytest.raises(BinlogFormatError, match=r"bin\.000001"):
        scout([data[:-missing]], Slice(0, "bin.000001", 4, 4 + len(data)), 10)


def test_the_events_that_a_dump_makes_up_are_in_no_slice() -> None:
    events = [description(), gtid(1), query("BEGIN"), rows(20, ends=True), Event(EventType.XID, bytes(8))]
    data = written(events)
    rotate = Event(EventType.ROTATE, bytes(8) + b"bin.000001", flags=0x20).bytes_at(0)
    heartbeat = Event(EventType.HEARTBEAT, b"bin.000001").bytes_at(0)
    piece = Slice(0, "bin.000001", 4, 4 + len(data))
    assert scout([rotate, data[:200], data[200:], heartbeat], piece, 10) == scout([data], piece, 10)
