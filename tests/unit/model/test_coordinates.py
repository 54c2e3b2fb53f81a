"""Binlog coordinates are ordered by number, and read back what they write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import BinlogFile, Slice

bases = st.text(
    st.characters(codec="ascii", categories=("L", "N", "P"), exclude_characters="/\\"), min_size=1, max_size=20
)
numbers = st.integers(1, 10**8)
positions = st.integers(0, 2**40)


def at(number: int, position: int = 4, base: str = "bin") -> BinlogCoordinates:
    return BinlogCoordinates(f"{base}.{number:06}", position)


def test_files_are_ordered_by_their_number_and_not_as_strings() -> None:
    assert at(1_000_000) > at(999_999)
    assert "bin.1000000" < "bin.999999", "as strings the order is reversed"


def test_a_later_file_is_after_any_position_of_an_earlier_one() -> None:
    assert at(8, 4) > at(7, 2**33)
    assert at(8, 4).has_reached(at(7, 2**33))


@given(numbers, positions, numbers, positions)
def test_order_is_that_of_number_and_position(one: int, here: int, other: int, there: int) -> None:
    assert (at(one, here) < at(other, there)) == ((one, here) < (other, there))
    assert at(one, here).has_reached(at(other, there)) == ((one, here) >= (other, there))


@given(bases, numbers, positions)
def test_what_is_written_is_read_back(base: str, number: int, position: int) -> None:
    coordinates = at(number, position, base)
    assert BinlogCoordinates.parse(str(coordinates)) == coordinates
    assert (coordinates.base, coordinates.number) == (base, number)


def test_a_base_name_may_have_dots_and_colons() -> None:
    coordinates = BinlogCoordinates.parse("db:1.eu.binlog.000012:4077")
    assert coordinates == BinlogCoordinates("db:1.eu.binlog.000012", 4077)
    assert coordinates.base == "db:1.eu.binlog"


@pytest.mark.parametrize(
    "name", ["/etc/p.000001", "a/b.000001", "a\\b.000001", "a\0b.000001", "a\tb.000001", "a\x1b[2Jb.000001",
             "\u202ea.000001",
             "a\u2066.000001", "\udc80.000001", "a" * 250 + ".000001", "../../p.000001"]
)  # fmt: skip
def test_name_that_is_a_path_or_cannot_be_shown_is_refused_wherever_it_comes_from(name: str) -> None:
    """SHOW BINARY LOGS, SHOW BINARY LOG STATUS, a form, a checkpoint, a slice of the commit log's window."""
    for use in (
        lambda: BinlogCoordinates(name, 4),
        lambda: BinlogCoordinates.parse(f"{name}:4"),
        lambda: BinlogFile(name, 4),
        lambda: Slice(0, name, 4, 5),
    ):
        with pytest.raises(
            SettingsError, match=r"no binlog file has|more than 255 bytes|not binlog coordinates"
        ) as caught:
            use()
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    ["", ":", "binlog.000012", "binlog.000012:", "binlog.000012:-4", "binlog.000012:4.5", "binlog:4", "binlog.12:4",
     ".000012:4", "binlog.000012x:4", "binlog.000012:0x4", "binlog.000012\n:4",
     "binlog.000012:²", "binlog.000012:" + "9" * 5000, "binlog." + "9" * 5000 + ":4"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_text_in_the_message(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        BinlogCoordinates.parse(text)
    assert repr(text.rpartition(":")[0]) in str(caught.value) or repr(text) in str(caught.value)


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(SettingsError, match="negative"):
        BinlogCoordinates("binlog.000001", -1)


def test_coordinates_of_another_base_name_have_no_order() -> None:
    with pytest.raises(ValueError, match="base names differ"):
        at(1).has_reached(at(2, base="mysql-bin"))
    assert at(1) != at(1, base="mysql-bin")
