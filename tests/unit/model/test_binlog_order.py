"""The order of a binlog's transactions says what is before one of them, whatever their numbers are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.model.binlog_order import BinlogOrder, gtid_of, join_runs, source_and_number

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCES = (UUID, f"{UUID}:tag", "0-1", "1-20")


@pytest.mark.parametrize("gtid", [f"{UUID}:7", f"{UUID}:tag:7", "0-1-7"])
def test_a_gtid_is_its_source_and_its_number(gtid: str) -> None:
    source, number = source_and_number(gtid)
    assert number == 7
    assert gtid_of(source, number) == gtid


@given(st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 50)), unique=True))
def test_each_transaction_has_the_place_at_which_the_binlog_has_it(transactions: list[tuple[str, int]]) -> None:
    order = BinlogOrder(join_runs((source, number, number) for source, number in transactions))
    assert BinlogOrder.from_json(order.to_json()) == order
    for place, (source, number) in enumerate(transactions):
        assert order.place(gtid_of(source, number)) == place
        before = [(run, each) for run, first, last in order.before(place) for each in range(first, last + 1)]
        assert before == transactions[:place]
    others = {(source, number) for source in SOURCES for number in range(52)} - set(transactions)
    assert {order.place(gtid_of(source, number)) for source, number in others} <= {None}


def test_numbers_that_follow_each_other_take_no_room() -> None:
    order = BinlogOrder(join_runs((UUID, number, number) for number in range(1, 100_001)))
    assert order.to_json() == {"sources": [UUID], "runs": [0, 1, 100_000]}
