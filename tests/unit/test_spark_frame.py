"""Blocks travel through Spark in rows of bounded size, whatever a message's, and come out as they went in."""

from __future__ import annotations

import random

import pytest

from changefeed.block import Block, Message, pack
from changefeed.spark import frame


def block_of(number: int, size_bytes: int) -> Block:
    value = random.Random(number).randbytes(size_bytes)
    return Block("shop.orders", 1, "bin.000007", 3, number, pack([Message(4, 0, b"key", value, b"id", b"")]))


@pytest.mark.parametrize("sizes", [[10], [5 << 20], [10, 3 << 20, 1 << 20, 20], [0]])
def test_blocks_of_any_size_are_rows_of_a_megabyte_at_most_and_come_out_as_they_went_in(sizes: list[int]) -> None:
    blocks = [block_of(number, size) for number, size in enumerate(sizes)]
    rows = [row for before, block in enumerate(blocks) for row in frame.block_rows(block, before)]
    batches = list(frame.decoded_batches(rows))
    assert max(len(row["payload"]) for batch in batches for row in batch.to_pylist()) <= 1 << 20
    assert max(batch.nbytes for batch in batches) < 4 << 20
    assert list(frame.blocks_of(batches)) == [(block, before) for before, block in enumerate(blocks)]
