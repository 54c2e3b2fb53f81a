"""A block gives back the messages that were put into it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.records.block import Message, MessageBlock, Step, pack, sequence_of, unpack

unsigned = st.integers(0, 2**64 - 1)
part = st.binary(max_size=40)
seconds = st.integers(0, 2**32 - 1)
headers = st.lists(st.tuples(st.sampled_from(["a", "binlog", "ä" * 40]), part), max_size=3).map(tuple)
messages = st.lists(
    st.builds(Message, unsigned, unsigned, st.none() | part, st.none() | part, part, part, headers, seconds),
    max_size=20,
)


@given(messages)
def test_what_is_packed_is_unpacked(given_messages: list[Message]) -> None:
    assert list(unpack(pack(given_messages))) == given_messages


@given(messages)
def test_a_block_knows_how_many_messages_it_has(given_messages: list[Message]) -> None:
    block = MessageBlock("shop.orders", 2, "bin.000007", 0, 1, pack(given_messages))
    assert block.message_count == len(given_messages)
    assert list(block.messages()) == given_messages


def test_null_and_empty_are_distinct() -> None:
    null, empty = Message(4, 0, None, None, b"id", b""), Message(4, 1, b"", b"", b"id", b"")
    assert list(unpack(pack([null, empty]))) == [null, empty]


def test_layout_is_as_documented() -> None:
    one, two = Message(4, 1, b"k", b"vv", b"iii", b"", seconds=7), Message(9, 6, None, None, b"j", b"g")
    assert pack([one, two]) == b"".join(
        (
            struct.pack("<Q", 2),
            struct.pack("<2Q", 4, 9),
            struct.pack("<2Q", 1, 6),
            struct.pack("<4I", 1, 3, 6, 6),
            struct.pack("<4I", 6, 6, 7, 8),
            struct.pack("<2I", 7, 0),
            bytes([0, 3]),
            b"kvviiijg",
        )
    )


@pytest.mark.parametrize("row", [0, 1, 2**20])
def test_steps_of_a_row_are_ordered_before_the_next_row(row: int) -> None:
    steps = [sequence_of(row, step) for step in (Step.CHANGE, Step.TOMBSTONE, Step.CREATE)]
    assert steps == sorted(steps)
    assert steps[-1] < sequence_of(row + 1, Step.CHANGE)
