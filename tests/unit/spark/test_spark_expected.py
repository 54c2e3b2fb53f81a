"""No message passes after one that is missing between decoding and publishing."""

from __future__ import annotations

import pytest
from encode_batches import encode_batches
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import SparkFailedError
from changefeed.records.batch import Batch
from changefeed.records.block import Message, MessageBlock, pack
from changefeed.spark.stages.expected import CompletenessCheck, DecodedCounts
from changefeed.spark.stages.messages import StoredBatch

_sizes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12)


def batches_of(sizes: list[tuple[int, int, int]]) -> list[Batch]:
    """Batches of (partition, slice, messages), in the order in which they are published."""
    made = []
    for number, (partition, slice, messages) in enumerate(sizes):
        payload = pack(Message(4 + index, 0, b"k", b"v", b"id", b"") for index in range(messages))
        made.append(MessageBlock("t", partition, "bin.000001", slice, number, payload))
    return sorted(encode_batches(made), key=lambda batch: (batch.partition, batch.slice, batch.number))


def store_and_count(batches: list[Batch]) -> tuple[DecodedCounts, list[StoredBatch]]:
    """The counts of ``batches``, each slice counted by another task, and the stored batches in order."""
    counts, stored_batches = DecodedCounts(), []
    for slice in sorted({batch.slice for batch in batches}):
        decoded = DecodedCounts()
        stored_batches += [StoredBatch.of(batch, decoded.add_batch(batch)) for batch in batches if batch.slice == slice]
        counts.add(decoded.counts())
    return counts, sorted(stored_batches, key=lambda stored: stored.order)


@given(_sizes)
def test_all_that_was_decoded_passes(sizes: list[tuple[int, int, int]]) -> None:
    batches = batches_of(sizes)
    counts, stored_batches = store_and_count(batches)
    assert list(CompletenessCheck(counts.by_slice).check(stored_batches)) == batches
    assert sum(counts.messages.values()) == sum(batch.messages for batch in batches)


@given(_sizes, st.data())
def test_no_batch_of_a_partition_passes_after_a_missing_one(
    sizes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    batches = batches_of(sizes)
    counts, stored_batches = store_and_count(batches)
    lost = stored_batches.pop(data.draw(st.integers(0, len(stored_batches) - 1)))
    passed: list[Batch] = []
    with pytest.raises(SparkFailedError, match="decoded messages of slice"):
        passed.extend(CompletenessCheck(counts.by_slice).check(stored_batches))
    missing = (lost.partition, lost.slice, lost.number)
    assert not [b for b in passed if b.partition == lost.partition and (b.partition, b.slice, b.number) > missing]


def test_a_batch_that_comes_twice_or_from_nowhere_stops() -> None:
    batches = batches_of([(0, 0, 2), (0, 0, 2)])
    counts, stored_batches = store_and_count(batches)
    for wrong in (
        [stored_batches[0], stored_batches[0]],
        [StoredBatch.of(batches_of([(1, 0, 1)])[0], 0)],
        [*stored_batches, stored_batches[1]],
    ):
        with pytest.raises(SparkFailedError):
            list(CompletenessCheck(counts.by_slice).check(wrong))
