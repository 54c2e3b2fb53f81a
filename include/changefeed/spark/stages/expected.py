"""What the publish stage must get: counts that are known before the first message of a window is published.

Progress moves over whatever was published, so nothing may be published behind a hole. Batches can be missing where
Spark lost some and made them again from a source that had changed or was away meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from changefeed.errors import SparkFailedError
from changefeed.kafka.progress import TopicPartition
from changefeed.records.batch import Batch
from changefeed.spark.stages.messages import PartitionCount, StoredBatch

SliceCounts = Mapping[TopicPartition, Sequence[tuple[int, int]]]
"""Of each topic-partition the slices that have messages for it, in order, each with how many."""


@dataclass
class Decoded:
    """What slices were decoded into, by topic-partition: messages and bytes of the batches, and messages by slice."""

    messages: dict[TopicPartition, int] = field(default_factory=dict)
    size_bytes: dict[TopicPartition, int] = field(default_factory=dict)
    _slices: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)

    def add_batch(self, batch: Batch) -> int:
        """Count a batch; return how many messages its slice had for its topic-partition before it."""
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
        """The counts that `CompletenessCheck` checks."""
        return {partition: sorted(slices.items()) for partition, slices in self._slices.items()}

    def counts(self) -> tuple[PartitionCount, ...]:
        """The counts of one slice, for `add`."""
        return tuple(
            PartitionCount(number, *key, count, self.size_bytes[key])
            for key, slices in self._slices.items()
            for number, count in slices.items()
        )

    def add(self, counts: Iterable[PartitionCount]) -> None:
        """Count what another task counted of a slice."""
        for count in counts:
            self._add(count.slice, (count.topic, count.partition), count.messages, count.size_bytes)


class CompletenessCheck:
    """Lets batches pass while none is missing before them; ``counts`` are those of all that must come."""

    def __init__(self, counts: SliceCounts) -> None:
        self._left = {partition: list(reversed(slices)) for partition, slices in counts.items()}
        self._given = dict.fromkeys(counts, 0)

    def passed(self, stored: Iterable[StoredBatch]) -> Iterator[Batch]:
        """The batches that are ``stored``, in order.

        Raises SparkFailedError at the first batch after a missing one, and at the end where any are missing; OSError
        where the file of a batch is not complete.
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
        if not slices or slices[-1][0] != batch.slice or self._given[partition] != before:
            raise self._missing(partition, slices[-1][0] if slices else batch.slice)
        self._given[partition] += batch.messages
        if self._given[partition] == slices[-1][1]:
            slices.pop()
            self._given[partition] = 0

    def _missing(self, partition: TopicPartition, slice_number: int) -> SparkFailedError:
        wanted = dict(self._left.get(partition) or []).get(slice_number, 0)
        return SparkFailedError(
            f"slice {slice_number} was decoded into {wanted} messages for partition {partition[1]} of "
            f"{partition[0]!r}, and {self._given.get(partition, 0)} of them were brought to be published: Spark lost "
            "decoded batches, or made them again otherwise. Nothing behind them was published; run again."
        )
