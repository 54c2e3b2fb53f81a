"""A window is cut into slices that hold each of its bytes once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import BinlogGoneError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import BinlogFile, Slice, Window, bytes_between, file_slices

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def window(start: str, head: str) -> Window:
    return Window(
        "shop", 7, UUID, BinlogCoordinates.parse(start), BinlogCoordinates.parse(head), "", f"{UUID}:1-5", 1_700_000_000
    )


def files(*sizes: int, first: int = 7) -> list[BinlogFile]:
    return [BinlogFile(f"bin.{number:06}", size) for number, size in enumerate(sizes, first)]


def test_a_window_inside_one_file_is_one_slice() -> None:
    found = list(file_slices(window("bin.000007:157", "bin.000007:900"), files(2000)))
    assert found == [Slice(0, "bin.000007", 157, 900)]
    assert found[0].size_bytes == 743


def test_a_window_over_a_rotation_has_a_slice_a_file() -> None:
    found = list(file_slices(window("bin.000007:157", "bin.000009:500"), files(2000, 3000, 1000)))
    assert found == [
        Slice(0, "bin.000007", 157, 2000),
        Slice(1, "bin.000008", 4, 3000),
        Slice(2, "bin.000009", 4, 500),
    ]


def test_a_head_at_the_begin_of_a_new_file_does_not_end_the_window_early() -> None:
    found = list(file_slices(window("bin.000007:1900", "bin.000008:157"), files(2000, 157)))
    assert found == [Slice(0, "bin.000007", 1900, 2000), Slice(1, "bin.000008", 4, 157)]


def test_a_start_at_the_end_of_a_closed_file_makes_no_empty_slice() -> None:
    found = list(file_slices(window("bin.000007:2000", "bin.000008:157"), files(2000, 157)))
    assert found == [Slice(0, "bin.000008", 4, 157)]


def test_an_empty_window_has_no_slices() -> None:
    empty = window("bin.000007:157", "bin.000007:157")
    assert empty.is_empty
    assert not list(file_slices(empty, files(2000)))


def test_files_are_found_by_number_where_the_name_grows_a_digit() -> None:
    found = list(file_slices(window("bin.999999:4", "bin.1000001:90"), files(50, 60, 90, first=999_999)))
    assert [window_slice.file for window_slice in found] == ["bin.999999", "bin.1000000", "bin.1000001"]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_file_that_was_purged_since_stops_the_run(missing: int) -> None:
    there = files(2000, 3000, 1000)
    del there[missing]
    with pytest.raises(BinlogGoneError, match=f"binlog number {7 + missing} .*purged"):
        list(file_slices(window("bin.000007:157", "bin.000009:500"), there))


@given(st.lists(st.integers(4, 2**34), min_size=1, max_size=8), st.data())
def test_slices_hold_each_byte_of_the_window_once(sizes: list[int], data: st.DataObject) -> None:
    there = files(*sizes)
    first = data.draw(st.integers(0, len(sizes) - 1))
    last = data.draw(st.integers(first, len(sizes) - 1))
    start = data.draw(st.integers(4, sizes[first]))
    end = data.draw(st.integers(start if first == last else 4, sizes[last]))
    slices = list(file_slices(window(f"{there[first].name}:{start}", f"{there[last].name}:{end}"), there))
    assert [window_slice.number for window_slice in slices] == list(range(len(slices)))
    assert all(window_slice.size_bytes > 0 for window_slice in slices)
    magic = 4 * (last - first)
    in_all = sum(window_slice.size_bytes for window_slice in slices)
    start_coordinates = BinlogCoordinates(there[first].name, start)
    end_coordinates = BinlogCoordinates(there[last].name, end)
    assert in_all == bytes_between(there, start_coordinates, end_coordinates) - magic


def test_a_window_is_plain_json_and_back() -> None:
    frozen = window("bin.000007:157", "bin.000009:500")
    assert Window.from_json(json.loads(json.dumps(frozen.to_json()))) == frozen
    assert replace(frozen, number=8) != frozen
