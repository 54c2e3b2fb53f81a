"""The ranges that are left out of a window, by the transactions of its slices."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from changefeed.errors import BinlogFormatError
from changefeed.model.slice_report import SliceReport
from changefeed.model.transaction_event import BinlogRange, PreparedTransaction, RowEffect, TransactionEvent
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock, pack
from changefeed.spark.stages.transaction_outcomes import TransactionOutcomes, VoidFilter, resolve_transactions

FILE = "bin.000001"
IN_TRANSACTION = "0-1-5"


def event(kind: str, begin: int, position: int, name: str = "") -> TransactionEvent:
    return TransactionEvent(RowEffect(kind), begin, position, position + 10, name)


def make_slice(number: int, start: int, end: int, gtid: str = "", file: str = FILE) -> Slice:
    return Slice(number, file, start, end, gtid)


def report(number: int, *events: TransactionEvent, open_since: int | None = None) -> SliceReport:
    return SliceReport(number, 0, 0, transaction_events=events, open_since=open_since)


def ranges(*pairs: tuple[int, int]) -> tuple[BinlogRange, ...]:
    return tuple(BinlogRange(FILE, *pair) for pair in pairs)


def test_plain_transactions_leave_nothing_out() -> None:
    slices = [make_slice(0, 4, 1000), make_slice(1, 1000, 2000)]
    assert resolve_transactions(slices, [report(0), report(1)]) == TransactionOutcomes()


def test_rollback_voids_the_complete_transaction() -> None:
    assert resolve_transactions(
        [make_slice(0, 4, 1000)], [report(0, event("rollback", 200, 400))]
    ).rolled_back == ranges((200, 410))


def test_a_rollback_takes_back_the_rows_of_earlier_slices_too() -> None:
    slices = [make_slice(0, 4, 500), make_slice(1, 500, 800, IN_TRANSACTION), make_slice(2, 800, 2000, IN_TRANSACTION)]
    reports = [report(0, open_since=300), report(1, open_since=500), report(2, event("rollback", 800, 900))]
    assert resolve_transactions(slices, reports).rolled_back == ranges((300, 910))


def test_a_transaction_of_several_slices_that_is_committed_stays() -> None:
    slices = [make_slice(0, 4, 500), make_slice(1, 500, 800, IN_TRANSACTION), make_slice(2, 800, 2000, IN_TRANSACTION)]
    reports = [report(0, open_since=300), report(1, open_since=500), report(2, event("rollback", 1000, 1200))]
    assert resolve_transactions(slices, reports).rolled_back == ranges((1000, 1210))


def test_rows_since_a_savepoint_of_an_earlier_slice_are_void() -> None:
    slices = [make_slice(0, 4, 500), make_slice(1, 500, 800, IN_TRANSACTION)]
    reports = [
        report(0, event("savepoint", 100, 150, "a"), event("savepoint", 100, 250, "b"), open_since=100),
        report(1, event("savepoint", 500, 550, "c"), event("rollback to", 500, 600, "B")),
    ]
    assert resolve_transactions(slices, reports).rolled_back == ranges((250, 600))


def test_a_savepoint_outlives_a_rollback_to_it_and_those_after_it_do_not() -> None:
    events = [
        event("savepoint", 4, 100, "a"),
        event("savepoint", 4, 200, "b"),
        event("rollback to", 4, 300, "a"),
        event("rollback to", 4, 500, "a"),
    ]
    assert resolve_transactions([make_slice(0, 4, 900)], [report(0, *events)]).rolled_back == ranges(
        (100, 300), (100, 500)
    )
    with pytest.raises(BinlogFormatError, match=r"bin\.000001:600: ROLLBACK TO 'b'.*no savepoint 'b'.*seek"):
        resolve_transactions([make_slice(0, 4, 900)], [report(0, *events, event("rollback to", 4, 600, "b"))])


def test_a_savepoint_set_again_is_the_later_one() -> None:
    events = [
        event("savepoint", 4, 100, "a"),
        event("savepoint", 4, 200, "A"),
        event("rollback to", 4, 300, "a"),
    ]
    assert resolve_transactions([make_slice(0, 4, 900)], [report(0, *events)]).rolled_back == ranges((200, 300))


@pytest.mark.parametrize(("one", "other"), [("é", "E"), ("e", "È"), ("straße", "strase")])
def test_savepoints_that_the_server_may_take_for_one_are_refused(one: str, other: str) -> None:
    """MariaDB compares names by utf8_general_ci: the later one may have replaced the earlier one."""
    events = [event("savepoint", 4, 100, one), event("savepoint", 4, 200, other), event("savepoint", 4, 250, "x")]
    assert resolve_transactions([make_slice(0, 4, 900)], [report(0, *events, event("rollback to", 4, 300, "X"))])
    for name in (one, other):
        with pytest.raises(BinlogFormatError, match=r"may be .* to the server"):
            resolve_transactions([make_slice(0, 4, 900)], [report(0, *events, event("rollback to", 4, 300, name))])


def test_savepoints_of_one_transaction_are_not_those_of_the_next() -> None:
    events = [event("savepoint", 100, 150, "a"), event("rollback to", 300, 350, "a")]
    with pytest.raises(BinlogFormatError, match="no savepoint 'a'"):
        resolve_transactions([make_slice(0, 4, 900)], [report(0, *events)])


def test_a_file_that_ends_inside_a_transaction_ends_with_its_rows_void() -> None:
    slices = [make_slice(0, 4, 500), make_slice(1, 500, 800, IN_TRANSACTION), make_slice(2, 4, 600, file="bin.000002")]
    reports = [report(0, open_since=300), report(1, open_since=500), report(2, event("rollback", 100, 200))]
    assert resolve_transactions(slices, reports).rolled_back == (
        *ranges((300, 800)),
        BinlogRange("bin.000002", 100, 210),
    )


def test_the_last_file_of_a_window_may_be_the_one_that_ends_so() -> None:
    assert resolve_transactions([make_slice(0, 4, 500)], [report(0, open_since=300)]).rolled_back == ranges((300, 500))


def test_a_slice_that_begins_outside_of_an_open_transaction_of_its_file_is_refused() -> None:
    with pytest.raises(BinlogFormatError, match="report it"):
        resolve_transactions([make_slice(0, 4, 500), make_slice(1, 500, 800)], [report(0, open_since=300), report(1)])


def test_rows_of_xa_prepare_are_left_out_at_their_place() -> None:
    outcomes = resolve_transactions([make_slice(0, 4, 500)], [report(0, event("xa prepare", 100, 200))])
    assert outcomes == TransactionOutcomes(prepared=ranges((100, 210)))
    assert [void.reason for void in outcomes.filters] == ["prepared"]


def test_transaction_events_pass_as_json() -> None:
    savepoint = event("savepoint", 4, 8, "s")
    assert TransactionEvent.from_json(json.loads(json.dumps(asdict(savepoint)))) == savepoint


def test_rows_rolled_back_in_a_prepared_transaction_are_void() -> None:
    prepared = PreparedTransaction(FILE, 4, 12, ((5, 6), (6, 7)))
    assert [position for position in range(3, 13) if prepared.holds(position)] == [4, 7, 8, 9, 10, 11]


def test_the_filter_leaves_out_the_messages_of_void_ranges_and_of_no_other_file() -> None:
    def block(file: str) -> MessageBlock:
        messages = [Message(position, 0, b"k", b"v", b"id%d" % position, b"") for position in (100, 200, 300, 400)]
        return MessageBlock("t", 0, file, 0, 0, pack(messages))

    void = VoidFilter("rolled_back", [BinlogRange(FILE, 150, 300), BinlogRange(FILE, 350, 400)])
    left = void.rest(block(FILE))
    assert left is not None
    assert [message.position for message in left.messages()] == [100, 300, 400]
    assert void.concerns(FILE, 100, 150)
    assert not void.concerns(FILE, 300, 340)
    assert not void.concerns("bin.000002", 100, 400)
    assert VoidFilter("rolled_back", [BinlogRange(FILE, 100, 401)]).rest(block(FILE)) is None
