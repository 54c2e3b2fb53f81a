"""The scout against a plain model of it, over random events, cut into chunks anywhere; and over damaged ones."""

from __future__ import annotations

import pytest
from binlog_events import GTID_TEXT, Event, description, gtid, query, rows, transactions, written
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.binlog.events.framing import HEADER, EventType
from changefeed.binlog.search.scout import scout, scout_in_parts
from changefeed.errors import BinlogFormatError
from changefeed.model.window import ANONYMOUS, Slice


def modelled(events: list[Event], slice_bytes: int) -> tuple[list[Slice], list[int]]:
    """The slices of ``events``, and the positions of statements: a plain model of the scout."""
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


@given(transactions(), st.integers(1, 600), st.integers(1, 500))
@settings(max_examples=150, deadline=None)
def test_scout_cuts_equal_those_of_the_model_for_any_chunks(
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


@given(transactions(), st.integers(1, 600), st.integers(1, 500))
@settings(max_examples=150, deadline=None)
def test_scout_in_parts_equals_scout_except_for_an_uncut_rest(
    events: list[Event], slice_bytes: int, chunk_bytes: int
) -> None:
    data = written([description(), *events])
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    slice = Slice(0, "bin.000001", 4, 4 + len(data))
    complete = scout(chunks, slice, slice_bytes)
    slices: list[Slice] = []
    statements: list[int] = []
    for part in scout_in_parts(chunks, slice, slice_bytes):
        slices += part.slices
        statements += [statement.position for statement in part.statements]
        before = [each.position for each in complete.statements if slices and each.position < slices[-1].start]
        assert statements[: len(before)] == before
    *cuts, rest = slices
    assert cuts == list(complete.slices[: len(cuts)])
    assert (rest.start, rest.gtid) == (complete.slices[len(cuts)].start, complete.slices[len(cuts)].gtid)
    assert rest.end == slice.end
    assert rest == complete.slices[-1] or rest.size_bytes <= 1.5 * slice_bytes


@given(transactions(), st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_events_raise_or_slices_have_every_byte(events: list[Event], data: st.DataObject) -> None:
    damaged = bytearray(written([description(), *events]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    slice = Slice(0, "bin.000001", 4, 4 + len(damaged))
    try:
        slices = scout([bytes(damaged)], slice, 50).slices
    except BinlogFormatError:
        return
    assert [(slices[0].start, slices[-1].end)] == [(slice.start, slice.end)]
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
    slice = Slice(0, "bin.000001", 4, 4 + len(data))
    assert scout([rotate, data[:200], data[200:], heartbeat], slice, 10) == scout([data], slice, 10)
