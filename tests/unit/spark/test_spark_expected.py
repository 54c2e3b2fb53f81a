"""Nothing passes behind a message that is missing between decoding and publishing."""

from __future__ import annotations

import pytest
from finished import finished
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import SparkFailedError
from changefeed.records.batch import Batch
from changefeed.records.block import Message, MessageBlock, pack
from changefeed.spark.stages.expected import CompletenessCheck, Decoded
from changefeed.spark.stages.messages import StoredBatch

_sizes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12)


def batches_of(sizes: list[tuple[int, int, int]]) -> list[Batch]:
    """Batches of (partition, slice, messages), in the order in which they are published."""
    made = []
    for number, (partition, piece, messages) in enumerate(sizes):
        payload = pack(Message(4 + index, 0, b"k", b"v", b"id", b"") for index in range(messages))
        made.append(MessageBlock("t", partition, "bin.000001", piece, number, payload))
    return sorted(finished(made), key=lambda batch: (batch.partition, batch.slice, batch.number))


def counted(batches: list[Batch]) -> tuple[Decoded, list[StoredBatch]]:
    """What the driver learns of ``batches``, each slice by another task, and they as they are brought."""
    whole, brought = Decoded(), []
    for piece in sorted({batch.slice for batch in batches}):
        decoded = Decoded()
        brought += [StoredBatch.of(batch, decoded.add_batch(batch)) for batch in batches if batch.slice == piece]
        whole.add(decoded.counts())
    return whole, sorted(brought, key=lambda stored: stored.order)


@given(_sizes)
def test_all_that_was_decoded_passes(sizes: list[tuple[int, int, int]]) -> None:
    batches = batches_of(sizes)
    whole, brought = counted(batches)
    assert list(CompletenessCheck(whole.by_slice).passed(brought)) == batches
    assert sum(whole.messages.values()) == sum(batch.messages for batch in batches)


@given(_sizes, st.data())
def test_nothing_of_a_partition_passes_behind_a_batch_that_is_missing(
    sizes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    batches = batches_of(sizes)
    whole, brought = counted(batches)
    lost = brought.pop(data.draw(st.integers(0, len(brought) - 1)))
    passed: list[Batch] = []
    with pytest.raises(SparkFailedError, match="were brought to be published"):
        passed.extend(CompletenessCheck(whole.by_slice).passed(brought))
    behind = (lost.partition, lost.slice, lost.number)
    assert not [b for b in passed if b.partition == lost.partition and (b.partition, b.slice, b.number) > behind]


def test_a_batch_that_comes_twice_or_from_nowhere_stops() -> None:
    batches = batches_of([(0, 0, 2), (0, 0, 2)])
    whole, brought = counted(batches)
    for wrong in ([brought[0], brought[0]], [StoredBatch.of(batches_of([(1, 0, 1)])[0], 0)], [*brought, brought[1]]):
        with pytest.raises(SparkFailedError):
            list(CompletenessCheck(whole.by_slice).passed(wrong))
