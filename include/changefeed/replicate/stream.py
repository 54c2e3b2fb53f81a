"""The records of all topics of a pipeline in the order of the source's commits, read ahead of the follower."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from changefeed.errors import BrokerUnavailableError, TopicError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.read_tables import TableReadRecord
from changefeed.kafka.partition_reader import PartitionReader, partition_reader
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.topics import partition_counts
from changefeed.model.topic_name import schema_changes_topic
from changefeed.pipeline.connections import PipelineConnections
from changefeed.replicate.block import OrderedRecords, Packed
from changefeed.replicate.partition_queue import PartitionQueue, removed
from changefeed.replicate.sealed import SealedStretch

_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.2
HELD_BYTES = 128 << 20
"""What may be held of partitions whose turn is yet to come; more is read of none but the one that is waited for."""


class SourceBlocks:
    """Iterates over the records of all ``queues`` in the order of their turns, each once, in blocks.

    Raises as `PartitionReader` and `PartitionQueue` do, and BrokerUnavailableError where a partition gives nothing for
    a long time.
    """

    def __init__(self, reader: PartitionReader, queues: Mapping[TopicPartition, PartitionQueue]) -> None:
        self._reader, self._queues = reader, queues
        self._last: Packed | None = None

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """From which offset of a partition on records were not handed out yet."""
        return {partition: queue.offset for partition, queue in self._queues.items()}

    def __iter__(self) -> Iterator[OrderedRecords]:
        while True:
            self._read()
            lasts = [queue.last for queue in self._queues.values() if queue.is_open]
            until = min(last for last in lasts if last is not None) if lasts else None
            given = [stretch for queue in self._queues.values() for stretch in queue.handed(until)]
            if given:
                block = OrderedRecords(given, self._last)
                if len(block):
                    self._last = max(self._last or (0, 0, 0), block.turn(-1))
                    yield block
            if not lasts:
                return

    def _read(self) -> None:
        """Read on until each partition has a record, or is at its end."""
        began = time.monotonic()
        self._close_those_at_their_end()
        while waiting := [each for each, queue in self._queues.items() if queue.is_open and queue.last is None]:
            is_full = sum(queue.held_bytes for queue in self._queues.values()) > HELD_BYTES
            is_open = [each for each, queue in self._queues.items() if queue.is_open]
            self._reader.only(waiting if is_full else is_open)
            batches = self._reader.poll(_POLL_SECONDS)
            for batch in batches:
                self._queues[batch.topic, batch.partition].take(batch)
            self._close_those_at_their_end()
            if batches:
                began = time.monotonic()
            elif time.monotonic() - began > _PATIENCE_SECONDS:
                topic, partition = waiting[0]
                raise BrokerUnavailableError(
                    f"partition {partition} of {topic!r} gave nothing for {_PATIENCE_SECONDS:g} seconds, and there are "
                    f"records up to offset {self._queues[waiting[0]].end}: try again"
                )

    def _close_those_at_their_end(self) -> None:
        for partition, position in self._reader.positions().items():
            queue = self._queues[partition]
            queue.is_open = queue.is_open and (position or 0) < queue.end


def topics_of(connections: PipelineConnections, state: CommitLogState) -> list[str]:
    """The topics that were given anything, by the commit log, snapshots included, and that of definitions."""
    names = {record.topic for record in state.of(TableReadRecord)}
    names |= {topic for topic, _ in state.progress}
    names |= {receipt.topic for manifest in state.seals.values() for receipt in manifest.topics if receipt.accounted}
    pipeline = connections.pipeline
    return sorted(names | {schema_changes_topic(pipeline.name, pipeline.topics.suffix)})


@dataclass(frozen=True)
class Partitions:
    """The partitions of the pipeline's topics: where each begins, and where it ended when it was looked at."""

    first: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def partitions_of(connections: PipelineConnections, state: CommitLogState) -> Partitions:
    """The partitions of all topics that ``state`` knows of. Raises TopicError for a topic that is gone."""
    pipeline = connections.pipeline
    topics = topics_of(connections, state)
    counts = partition_counts(connections.kafka, topics)
    definitions = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
    if gone := [topic for topic in topics if topic not in counts and topic != definitions]:
        raise TopicError(
            f"topic {gone[0]!r}, which pipeline {pipeline.name!r} published to, is not in the cluster: what it held is "
            "lost to the follower. Copy the source's tables to it anew, and give the coordinates with --from."
        )
    partitions = [(topic, partition) for topic, count in sorted(counts.items()) for partition in range(count)]
    with partition_reader(connections.kafka, partitions, _wanted(connections)) as look:
        return Partitions(look.first_offsets(), look.last_stable_offsets())


def _wanted(connections: PipelineConnections) -> str:
    return f"to bring the changes of pipeline {connections.pipeline.name!r} to a follower"


@contextmanager
def source_blocks(
    connections: PipelineConnections,
    partitions: Partitions,
    stretch: SealedStretch,
    offsets: Mapping[TopicPartition, int],
    reads: Mapping[TopicPartition, int] | None = None,
) -> Iterator[SourceBlocks]:
    """Open ``partitions`` where ``offsets`` say that there is something new, those that have none at their beginning.

    Rows of snapshots are among the records from offset ``reads`` on, or from the beginning where there is none; none
    without ``reads``. Raises TopicError for a topic whose first records are not there any more (retention).
    """
    first, ends = partitions.first, partitions.ends
    for partition, offset in first.items():
        if offset > offsets.get(partition, offset):
            raise removed(partition, offset)
    queues = {}
    for each in first:
        start = offsets.get(each, first[each])
        shortened = first[each] if first[each] and each not in offsets else None
        read_from = None if reads is None else reads.get(each, 0)
        queues[each] = PartitionQueue(each, start, ends[each], stretch, shortened, read_from)
    start_at = {each: queue.start for each, queue in queues.items()}
    listed = sorted(first)
    with partition_reader(
        connections.kafka, listed, _wanted(connections), start=start_at, whole_batches=True, nearest=True
    ) as reader:
        yield SourceBlocks(reader, queues)


_PARTS = 2
_TICK_SECONDS = 0.2


@dataclass(frozen=True)
class Part:
    """A block, and from which offset of each partition on no record was handed out before it."""

    block: OrderedRecords
    offsets: Mapping[TopicPartition, int]


@contextmanager
def read_ahead(blocks: SourceBlocks) -> Iterator[Iterator[Part]]:
    """The ``blocks`` in parts, read by a thread that is _PARTS ahead at most; it is gone at the block's end.

    The iterator raises what reading raises.
    """
    parts: queue.Queue[Part | BaseException | None] = queue.Queue(_PARTS)
    ended = threading.Event()

    def put(item: Part | BaseException | None) -> None:
        while not ended.is_set():
            try:
                parts.put(item, timeout=_TICK_SECONDS)
            except queue.Full:
                continue
            return

    def read() -> None:
        try:
            for part in _parts(blocks):
                put(part)
                if ended.is_set():
                    return
            put(None)
        except BaseException as error:  # it is the reader's to raise, whatever it is
            put(error)

    def taken() -> Iterator[Part]:
        while (item := parts.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=read, name="read ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        ended.set()
        thread.join()


def _parts(blocks: SourceBlocks) -> Iterator[Part]:
    offsets = dict(blocks.offsets)
    for block in blocks:
        yield Part(block, offsets)
        offsets = dict(blocks.offsets)
