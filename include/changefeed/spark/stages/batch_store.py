"""Store finished batches between the tasks that decode them and the tasks that publish them.

All of a window or a snapshot's round is decoded before any of it is published. With a local master the batches are
stored in files, and the driver sends their paths to the publishing tasks; on a cluster Spark stores and moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from changefeed.kafka.progress import TopicPartition
from changefeed.spark.conf import BATCH_CONF
from changefeed.spark.stages.decode_task import task_number
from changefeed.spark.stages.messages import (
    BATCH_COLUMNS,
    IS_BATCH,
    MESSAGE_SCHEMA,
    STORED_SCHEMA,
    StoredBatch,
    TaskMessage,
    batches_of,
    message_batches,
    messages_of,
    stored_batches,
)
from changefeed.spark.target import SparkTarget, rows_of_tasks

if TYPE_CHECKING:
    import pyarrow as pa


class Numbered(Protocol):
    """A slice or a chunk, whose number its batches have."""

    @property
    def number(self) -> int:
        """The number, unique in a store."""
        ...


SliceOrChunk = TypeVar("SliceOrChunk", bound=Numbered)
PublishStage = Callable[[int, Iterable[StoredBatch]], Iterator[TaskMessage]]
"""Publishes the batches of the task with the number."""


class BatchStore(Protocol):
    """Stores the batches of slices or chunks until all are decoded, and passes them to the tasks that publish them.

    Lost batches fail the run and are not decoded again, because a second decoding may have fewer messages if the source
    is not reachable any more.
    """

    def decode(
        self,
        tasks: Sequence[Sequence[SliceOrChunk]],
        stage: Callable[[Sequence[SliceOrChunk]], Iterator[StoredBatch | TaskMessage]],
    ) -> list[TaskMessage]:
        """Run ``stage`` over each of ``tasks`` in a Spark task; store the batches and return the messages.

        Several threads may call it in parallel.
        """
        ...

    def publish(
        self, stage: PublishStage, assigned_tasks: Mapping[TopicPartition, int] | None = None
    ) -> list[TaskMessage]:
        """Run ``stage`` over all stored batches; return its messages.

        Task number ``assigned_tasks[topic, partition]`` gets all batches of a topic-partition, in the order of
        `StoredBatch.order`. Without ``assigned_tasks`` each task gets the batches that the decoding task of the same
        number stored, in that order, and no batch is moved; this is possible after a single `decode` only.
        """
        ...

    def clear(self) -> None:
        """Free all stored batches."""
        ...


def batch_store(spark: SparkTarget, folder: str | None) -> BatchStore:
    """The store for ``folder``, the result of `SparkTarget.local_folder`."""
    return ShuffledBatches(spark) if folder is None else LocalBatches(spark)


class LocalBatches:
    """The `BatchStore` of a local master, for stages that write payloads to files of a folder.

    The driver holds 200 bytes for each batch; a slice has one or a few batches for each of its topic-partitions. A
    shuffle of Spark would cost as much as publishing: a plan, tables in the JVM, a sort and Spark SQL.
    """

    def __init__(self, spark: SparkTarget) -> None:
        self._spark = spark
        self._batches: list[StoredBatch] = []
        self._task_of: dict[int, int] = {}

    def decode(
        self,
        tasks: Sequence[Sequence[SliceOrChunk]],
        stage: Callable[[Sequence[SliceOrChunk]], Iterator[StoredBatch | TaskMessage]],
    ) -> list[TaskMessage]:
        """See `BatchStore`."""
        items = self._spark.results_of(tasks, stage)
        self._task_of |= {work.number: number for number, task in enumerate(tasks) for work in task}
        self._batches.extend(
            [item for item in items if isinstance(item, StoredBatch)]
        )  # one call: jobs end in parallel
        return [item for item in items if not isinstance(item, StoredBatch)]

    def publish(
        self, stage: PublishStage, assigned_tasks: Mapping[TopicPartition, int] | None = None
    ) -> list[TaskMessage]:
        """See `BatchStore`."""
        numbers = set((self._task_of if assigned_tasks is None else assigned_tasks).values())
        tasks: list[tuple[int, list[StoredBatch]]] = [(number, []) for number in range(max(numbers, default=-1) + 1)]
        if assigned_tasks is None:
            for batch in self._batches:
                tasks[self._task_of[batch.slice]][1].append(batch)
        else:
            for batch in sorted(self._batches, key=lambda batch: batch.order):
                tasks[assigned_tasks[batch.topic_partition]][1].append(batch)
        return self._spark.results_of(tasks, lambda task: stage(*task))

    def clear(self) -> None:
        """See `BatchStore`."""
        self._batches, self._task_of = [], {}


_STORED = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True)
"""Batches are uncompressed in the JVM's memory, or on disk if there is no room; the shuffle writes them to disk
anyway."""


class ShuffledBatches:
    """The `BatchStore` of a cluster or a Connect server: Spark's memory and disks, and a shuffle.

    Decoded batches are local checkpoints. If Spark loses one, the run fails, and nothing is decoded again.
    """

    def __init__(self, spark: SparkTarget) -> None:
        self._spark = spark
        self._parts: list[DataFrame] = []
        for name, value in BATCH_CONF.items():
            spark.session.conf.set(name, value)

    def decode(
        self,
        tasks: Sequence[Sequence[SliceOrChunk]],
        stage: Callable[[Sequence[SliceOrChunk]], Iterator[StoredBatch | TaskMessage]],
    ) -> list[TaskMessage]:
        """See `BatchStore`."""
        # Not eager, so that the query below computes the checkpoint.
        session = self._spark.session
        items = rows_of_tasks(session, tasks, lambda of_task: stored_batches(stage(of_task)), STORED_SCHEMA)
        part = items.localCheckpoint(eager=False, storageLevel=_STORED)
        self._parts.append(part)
        return messages_of(part.where(f"kind <> '{IS_BATCH}'").select("kind", "text").collect())

    def publish(
        self, stage: PublishStage, assigned_tasks: Mapping[TopicPartition, int] | None = None
    ) -> list[TaskMessage]:
        """See `BatchStore`."""

        def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return message_batches(stage(task_number(), batches_of(batches)))

        stored = reduce(lambda some, more: some.union(more), self._parts).where(f"kind = '{IS_BATCH}'")
        if assigned_tasks is not None:
            stored = stored.repartitionById(
                len(set(assigned_tasks.values())), _task_of(assigned_tasks)
            ).sortWithinPartitions("topic", "partition", "slice", "number")
        return messages_of(stored.select(*BATCH_COLUMNS).mapInArrow(publish, MESSAGE_SCHEMA).collect())

    def clear(self) -> None:
        """See `BatchStore`."""
        while self._parts:
            self._spark.forget_checkpoint(self._parts.pop())


def _task_of(assigned_tasks: Mapping[TopicPartition, int]) -> Column:
    """The column with the task of a batch, looked up in a constant map, which needs no join. Topic names cannot contain
    the separators of its keys."""
    tasks = "\n".join(f"{topic}/{partition}={task}" for (topic, partition), task in assigned_tasks.items())
    name = F.concat("topic", F.lit("/"), F.col("partition").cast("string"))
    return F.element_at(F.str_to_map(F.lit(tasks), F.lit("\n"), F.lit("=")), name).cast("int")
