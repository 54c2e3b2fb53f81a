"""Reads the records of all topics of a pipeline in the source's commit order, ahead of the follower."""

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
from changefeed.replicate.block import OrderedRecords, PackedOrder
from changefeed.replicate.partition_queue import PartitionQueue, removed_records_error
from changefeed.replicate.sealed_range import SealedRange

_READ_TIMEOUT_SECONDS = 300.0
_POLL_SECONDS = 0.2
HELD_BYTES = 128 << 20
"""The limit for records in memory. Above it, only partitions without a record in memory are read: the others wait for
them."""


class SourceBlocks:
    """Iterates over the records of all ``queues`` in commit order, each once, in blocks.

    Raises what `PartitionReader` and `PartitionQueue` raise, and BrokerUnavailableError if a partition with unread
    records returns none for _READ_TIMEOUT_SECONDS.
    """

    def __init__(self, reader: PartitionReader, queues: Mapping[TopicPartition, PartitionQueue]) -> None:
        self._reader, self._queues = reader, queues
        self._last: PackedOrder | None = None

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """By partition, the offset of the first record that was not returned yet."""
        return {partition: queue.offset for partition, queue in self._queues.items()}

    def __iter__(self) -> Iterator[OrderedRecords]:
        while True:
            self._read()
            lasts = [queue.last for queue in self._queues.values() if queue.is_open]
            until = min(last for last in lasts if last is not None) if lasts else None
            runs = [sealed_range for queue in self._queues.values() for sealed_range in queue.take_until(until)]
            if runs:
                block = OrderedRecords(runs, self._last)
                if len(block):
                    self._last = max(self._last or (0, 0, 0), block.order(-1))
                    yield block
            if not lasts:
                return

    def _read(self) -> None:
        """Read until each partition has a record in memory or is at its end."""
        began = time.monotonic()
        self._close_ended_queues()
        while waiting := [each for each, queue in self._queues.items() if queue.is_open and queue.last is None]:
            is_full = sum(queue.held_bytes for queue in self._queues.values()) > HELD_BYTES
            is_open = [each for each, queue in self._queues.items() if queue.is_open]
            self._reader.only(waiting if is_full else is_open)
            batches = self._reader.poll(_POLL_SECONDS)
            for batch in batches:
                self._queues[batch.topic, batch.partition].take(batch)
            self._close_ended_queues()
            if batches:
                began = time.monotonic()
            elif time.monotonic() - began > _READ_TIMEOUT_SECONDS:
                topic, partition = waiting[0]
                raise BrokerUnavailableError(
                    f"expected records of partition {partition} of {topic!r} up to offset "
                    f"{self._queues[waiting[0]].end}, got none for {_READ_TIMEOUT_SECONDS:g} seconds. Run again."
                )

    def _close_ended_queues(self) -> None:
        for partition, position in self._reader.positions().items():
            queue = self._queues[partition]
            queue.is_open = queue.is_open and (position or 0) < queue.end


def topics_of(connections: PipelineConnections, state: CommitLogState) -> list[str]:
    """The topics that windows and snapshots have written, according to the commit log, and the DDL topic."""
    names = {record.topic for record in state.of(TableReadRecord)}
    names |= {topic for topic, _ in state.progress}
    names |= {receipt.topic for manifest in state.seals.values() for receipt in manifest.topics if receipt.accounted}
    pipeline = connections.pipeline
    return sorted(names | {schema_changes_topic(pipeline.name, pipeline.topics.suffix)})


@dataclass(frozen=True)
class Partitions:
    """The partitions of the pipeline's topics: the ``first`` offset of each, and its end when it was read."""

    first: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def partitions_of(connections: PipelineConnections, state: CommitLogState) -> Partitions:
    """The partitions of all topics in ``state``. Raises TopicError if a topic was removed."""
    pipeline = connections.pipeline
    topics = topics_of(connections, state)
    counts = partition_counts(connections.kafka, topics)
    ddl_topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
    if gone := [topic for topic in topics if topic not in counts and topic != ddl_topic]:
        raise TopicError(
            f"topic {gone[0]!r}, which pipeline {pipeline.name!r} published to, is not in the cluster, so its records "
            "are lost to the follower. Copy the source's tables to it again, and give the coordinates with --from."
        )
    partitions = [(topic, partition) for topic, count in sorted(counts.items()) for partition in range(count)]
    with partition_reader(connections.kafka, partitions, _purpose(connections)) as look:
        return Partitions(look.first_offsets(), look.last_stable_offsets())


def _purpose(connections: PipelineConnections) -> str:
    return f"to bring the changes of pipeline {connections.pipeline.name!r} to a follower"


@contextmanager
def source_blocks(
    connections: PipelineConnections,
    partitions: Partitions,
    sealed_range: SealedRange,
    offsets: Mapping[TopicPartition, int],
    reads: Mapping[TopicPartition, int] | None = None,
) -> Iterator[SourceBlocks]:
    """A context with the blocks of ``partitions`` from ``offsets`` on; without an offset, from the partition's start.

    With ``reads``, rows of snapshots are included from the partition's offset in it on, or from the partition's start.
    Raises TopicError if records after ``offsets`` were removed (retention).
    """
    first, ends = partitions.first, partitions.ends
    for partition, offset in first.items():
        if offset > offsets.get(partition, offset):
            raise removed_records_error(partition, offset)
    queues = {}
    for each in first:
        start = offsets.get(each, first[each])
        truncated_at = first[each] if first[each] and each not in offsets else None
        read_from = None if reads is None else reads.get(each, 0)
        queues[each] = PartitionQueue(each, start, ends[each], sealed_range, truncated_at, read_from)
    start_at = {each: queue.start for each, queue in queues.items()}
    listed = sorted(first)
    with partition_reader(
        connections.kafka, listed, _purpose(connections), start=start_at, stored_batches=True, nearest=True
    ) as reader:
        yield SourceBlocks(reader, queues)


_PARTS = 2
_TICK_SECONDS = 0.2


@dataclass(frozen=True)
class Part:
    """A block, and by partition the offset of the first record that was not returned before the block."""

    block: OrderedRecords
    offsets: Mapping[TopicPartition, int]


@contextmanager
def read_ahead(blocks: SourceBlocks) -> Iterator[Iterator[Part]]:
    """A context with an iterator of ``blocks``. A thread reads at most _PARTS ahead; it ends with the context.

    The iterator raises the errors of the thread.
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
        except BaseException as error:  # the iterator raises it
            put(error)

    def receive() -> Iterator[Part]:
        while (item := parts.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=read, name="read ahead", daemon=True)
    thread.start()
    try:
        yield receive()
    finally:
        ended.set()
        thread.join()


def _parts(blocks: SourceBlocks) -> Iterator[Part]:
    offsets = dict(blocks.offsets)
    for block in blocks:
        yield Part(block, offsets)
        offsets = dict(blocks.offsets)
