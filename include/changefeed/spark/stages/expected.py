"""Count decoded messages, and check that the publish stage gets all of them.

Progress moves over all published messages, so no message may be published after a missing one. Batches can be missing
if Spark lost them and decoded them again from a source that changed or was not reachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from changefeed.errors import SparkFailedError
from changefeed.kafka.progress import TopicPartition
from changefeed.records.batch import Batch
from changefeed.spark.stages.messages import PartitionCount, StoredBatch

SliceCounts = Mapping[TopicPartition, Sequence[tuple[int, int]]]
"""By topic-partition, the number and the message count of each slice that has messages for it, in order."""


@dataclass
class DecodedCounts:
    """The counts of decoded slices, by topic-partition: messages, bytes of batches, and messages by slice."""

    messages: dict[TopicPartition, int] = field(default_factory=dict)
    size_bytes: dict[TopicPartition, int] = field(default_factory=dict)
    _slices: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)

    def add_batch(self, batch: Batch) -> int:
        """Count a batch; return the number of messages of its slice and topic-partition before it."""
        before = self._slices.get((batch.topic, batch.partition), {}).get(batch.slice, 0)
        self._add(batch.slice, (batch.topic, batch.partition), batch.messages, len(batch.records))
        return before

    def _add(self, slice_number: int, key: TopicPartition, messages: int, size_bytes: int) -> None:
        self.messages[key] = self.messages.get(key, 0) + messages
        self.size_bytes[key] = self.size_bytes.get(key, 0) + size_bytes
        slices = self._slices.setdefault(key, {})
        slices[slice_number] = slices.get(slice_number, 0) + messages

    @property
    def by_slice(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        """The counts for `CompletenessCheck`."""
        return {partition: sorted(slices.items()) for partition, slices in self._slices.items()}

    def counts(self) -> tuple[PartitionCount, ...]:
        """The counts of one slice, for `add`."""
        return tuple(
            PartitionCount(number, *key, count, self.size_bytes[key])
            for key, slices in self._slices.items()
            for number, count in slices.items()
        )

    def add(self, counts: Iterable[PartitionCount]) -> None:
        """Add the counts of a slice that another task decoded."""
        for count in counts:
            self._add(count.slice, (count.topic, count.partition), count.messages, count.size_bytes)


class CompletenessCheck:
    """Checks that no batch is missing; ``counts`` are the expected counts."""

    def __init__(self, counts: SliceCounts) -> None:
        self._left = {partition: list(reversed(slices)) for partition, slices in counts.items()}
        self._received = dict.fromkeys(counts, 0)

    def check(self, stored: Iterable[StoredBatch]) -> Iterator[Batch]:
        """The ``stored`` batches, in order.

        Raises SparkFailedError at the first batch after a missing one, and at the end if batches are missing; OSError
        if the file of a batch is not complete.
        """
        for each in stored:
            batch = each.batch()
            self._take(batch, each.before)
            yield batch
        for partition, slices in self._left.items():
            if slices:
                raise self._missing(partition, slices[-1][0])

    def _take(self, batch: Batch, before: int) -> None:
        partition = (batch.topic, batch.partition)
        slices = self._left.get(partition)
        if not slices or slices[-1][0] != batch.slice or self._received[partition] != before:
            raise self._missing(partition, slices[-1][0] if slices else batch.slice)
        self._received[partition] += batch.messages
        if self._received[partition] == slices[-1][1]:
            slices.pop()
            self._received[partition] = 0

    def _missing(self, partition: TopicPartition, slice_number: int) -> SparkFailedError:
        expected = dict(self._left.get(partition) or []).get(slice_number, 0)
        return SparkFailedError(
            f"expected {expected} decoded messages of slice {slice_number} for partition {partition[1]} of "
            f"{partition[0]!r}, found {self._received.get(partition, 0)}: Spark lost decoded batches, or decoded them "
            "again with another result. No message after them was published. Run again."
        )
