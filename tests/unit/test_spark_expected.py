"""Nothing passes behind a message that is missing between decoding and publishing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.block import Block, Message, pack
from changefeed.errors import SparkFailedError
from changefeed.spark.expected import Decoded, WholeBlocks

_sizes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12)


def blocks_of(sizes: list[tuple[int, int, int]]) -> list[Block]:
    """Blocks of (partition, slice, messages), in the order in which they are published."""
    made = []
    for number, (partition, piece, messages) in enumerate(sizes):
        payload = pack(Message(4 + index, 0, b"k", b"v", b"id", b"") for index in range(messages))
        made.append(Block("t", partition, "bin.000001", piece, number, payload))
    return sorted(made, key=lambda block: (block.partition, block.slice, block.number))


def counted(blocks: list[Block]) -> tuple[Decoded, list[tuple[Block, int]]]:
    """What the driver learns of ``blocks``, each slice by another task, and the blocks as they are brought."""
    whole, brought = Decoded(), []
    for piece in sorted({block.slice for block in blocks}):
        decoded = Decoded()
        brought += [(block, decoded.add_block(block)) for block in blocks if block.slice == piece]
        whole.add_text(decoded.text())
    return whole, sorted(brought, key=lambda item: (item[0].partition, item[0].slice, item[0].number))


@given(_sizes)
def test_all_that_was_decoded_passes(sizes: list[tuple[int, int, int]]) -> None:
    blocks = blocks_of(sizes)
    whole, brought = counted(blocks)
    assert list(WholeBlocks(whole.by_slice).passed(brought)) == blocks
    assert sum(whole.messages.values()) == sum(block.message_count for block in blocks)


@given(_sizes, st.data())
def test_nothing_of_a_partition_passes_behind_a_block_that_is_missing(
    sizes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    blocks = blocks_of(sizes)
    whole, brought = counted(blocks)
    lost, _ = brought.pop(data.draw(st.integers(0, len(brought) - 1)))
    passed: list[Block] = []
    with pytest.raises(SparkFailedError, match="were brought to be published"):
        passed.extend(WholeBlocks(whole.by_slice).passed(brought))
    behind = (lost.partition, lost.slice, lost.number)
    assert not [b for b in passed if b.partition == lost.partition and (b.partition, b.slice, b.number) > behind]


def test_a_block_that_comes_twice_or_from_nowhere_stops() -> None:
    blocks = blocks_of([(0, 0, 2), (0, 0, 2)])
    whole, brought = counted(blocks)
    for wrong in ([brought[0], brought[0]], [(blocks_of([(1, 0, 1)])[0], 0)], [*brought, brought[1]]):
        with pytest.raises(SparkFailedError):
            list(WholeBlocks(whole.by_slice).passed(wrong))
