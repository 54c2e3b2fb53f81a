"""GTID sets do what sets do, in MySQL's, tagged and MariaDB's form."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import SettingsError
from changefeed.model.gtid import GtidSet

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4f22fb58-82db-22f2-af44-d91bba53a673"

Model = frozenset[tuple[str, int]]
models: st.SearchStrategy[Model] = st.frozensets(
    st.tuples(st.sampled_from([A, B, f"{A}:billing", f"{B}:a_1"]), st.integers(1, 30)), max_size=40
)


def of(model: Model) -> GtidSet:
    """One transaction at a time: merging is what is under test."""
    return GtidSet.parse(",".join(f"{source}:{number}" for source, number in sorted(model)))


def members(gtids: GtidSet) -> Model:
    return frozenset(
        (source, number)
        for source, intervals in gtids.intervals
        for first, last in intervals
        for number in range(first, last + 1)
    )


@given(models)
def test_a_set_holds_what_it_was_made_of(model: Model) -> None:
    assert members(of(model)) == model
    assert bool(of(model)) == bool(model)


@given(models)
def test_what_is_written_is_read_back(model: Model) -> None:
    assert GtidSet.parse(str(of(model))) == of(model)


@given(models, models, models)
def test_union_is_that_of_sets(one: Model, two: Model, three: Model) -> None:
    assert of(one).union(of(two), of(three)) == of(one | two | three)


@given(models, models)
def test_subtract_is_that_of_sets(one: Model, two: Model) -> None:
    assert of(one).subtract(of(two)) == of(one - two)


@given(models, models)
def test_contains_is_that_of_sets(one: Model, two: Model) -> None:
    assert of(one).contains(of(two)) == (two <= one)
    assert of(one | two).contains(of(two))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        (f"{A}:1", f"{A}:1"),
        (f"{A}:1-3:4-9:11", f"{A}:1-9:11"),
        (f"{A}:7,{A}:5-6", f"{A}:5-7"),
        (f"{A.upper()}:1-3,\n{B}:5", f"{A}:1-3,{B}:5"),
        (f"{B}:1, {A}:1", f"{A}:1,{B}:1"),
        (f"{A}:1-3:billing:5-7:9:audit:2", f"{A}:1-3:audit:2:billing:5-7:9"),
        (f"{A}:Billing:5", f"{A}:billing:5"),
    ],
)
def test_mysqls_text_is_read_and_written_in_one_form(text: str, written: str) -> None:
    assert str(GtidSet.parse(text)) == written
    assert GtidSet.parse(written) == GtidSet.parse(text)


def test_the_same_number_with_and_without_a_tag_is_two_transactions() -> None:
    assert not GtidSet.parse(f"{A}:1-9").contains(GtidSet.parse(f"{A}:billing:5"))


@pytest.mark.parametrize(
    "text",
    ["bin.000012:4", A, f"{A}:", f"{A}:1-", f"{A}:-3", f"{A}:1:2x", f"{A}:9tag:1", f"{A[:-1]}:1", "0-1", "0-1-2-3",
     f"{A}:1;{B}:2", f"{A}:5-3", f"{A}:0", f"{A}:tag", f"{A}:" + "9" * 5000,
     "0-1-" + "9" * 5000],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        GtidSet.parse(text)


def test_mariadbs_position_is_one_number_a_domain() -> None:
    position = GtidSet.parse("1-11-99,0-10-5")
    assert str(position) == "0-10-5,1-11-99"
    assert position.contains(GtidSet.parse("0-10-4"))
    assert not position.contains(GtidSet.parse("0-10-6"))
    assert not position.contains(GtidSet.parse("2-10-1"))


def test_mariadbs_union_keeps_the_later_transaction_and_its_server() -> None:
    one, two = GtidSet.parse("0-10-5,1-11-7"), GtidSet.parse("0-12-9,1-13-6")
    assert str(one.union(two)) == str(two.union(one)) == "0-12-9,1-11-7"


@pytest.mark.parametrize(
    ("before", "later", "after"),
    [
        ("0-1-9,7-1-3", ["0-2-4", "", "0-1-5,8-3-1"], "0-1-5,7-1-3,8-3-1"),
        ("", ["", "0-1-5"], "0-1-5"),
        ("0-1-9", [], "0-1-9"),
        ("aaaaaaaa-0000-4000-8000-00000000000a:1-5", ["", "aaaaaaaa-0000-4000-8000-00000000000a:9:6"],
         "aaaaaaaa-0000-4000-8000-00000000000a:1-6:9"),
    ],
)  # fmt: skip
def test_a_position_moves_to_the_last_transaction_of_a_domain_whatever_its_number(
    before: str, later: list[str], after: str
) -> None:
    assert str(GtidSet.parse(before).move_past(*map(GtidSet.parse, later))) == after


def test_mariadbs_difference_is_what_the_other_has_not_seen() -> None:
    assert str(GtidSet.parse("0-10-5,1-11-7").subtract(GtidSet.parse("0-10-5"))) == "1-11-7"
    assert not GtidSet.parse("0-10-5").subtract(GtidSet.parse("0-12-9"))


def test_a_difference_of_sets_with_many_gaps_is_found_in_seconds() -> None:
    uuid, count, begin = "aaaaaaaa-0000-4000-8000-00000000000a", 200_000, time.process_time()
    odd = GtidSet.parse(":".join([uuid, *map(str, range(1, 2 * count, 2))]))
    every_fourth = GtidSet.parse(":".join([uuid, *map(str, range(3, 2 * count, 4))]))
    left = odd.subtract(every_fourth)
    assert str(left) == ":".join([uuid, *map(str, range(1, 2 * count, 4))])
    assert odd.contains(every_fourth)
    assert not every_fourth.contains(odd)
    assert time.process_time() - begin < 10


def test_differences_are_those_of_the_numbers() -> None:
    numbers = range(1, 9)
    for first in range(1 << 6):
        for second in range(1 << 6):
            one, other = ({n for n in numbers if bits >> (n - 1) & 1} for bits in (first, second))
            left = _set_of(one).subtract(_set_of(other))
            assert left == _set_of(one - other)


def _set_of(numbers: set[int]) -> GtidSet:
    uuid = "aaaaaaaa-0000-4000-8000-00000000000a"
    return GtidSet.parse(":".join([uuid, *map(str, sorted(numbers))]) if numbers else "")
