"""Where finished batches are between the tasks that decode them and those that publish them.

All of a window or a round is decoded before any of it is published. At a local master the batches are in files by then,
and the driver tells each publishing task where; on a cluster they are in Spark, which moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Protocol, TypeVar

import pyarrow as pa
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


class Numbered(Protocol):
    """A slice or a chunk: its batches have its number."""

    @property
    def number(self) -> int:
        """The number, among all that one store gets."""
        ...


Piece = TypeVar("Piece", bound=Numbered)
PublishStage = Callable[[int, Iterable[StoredBatch]], Iterator[TaskMessage]]
"""Publishes the batches of the task of that number."""


class BatchStore(Protocol):
    """Stores the batches of slices or chunks until all are decoded, and brings them to the tasks that publish them.

    Lost batches fail the run and are not made again: a slice that is decoded again may come out shorter, from a source
    that is away by then.
    """

    def decode(
        self, tasks: Sequence[Sequence[Piece]], stage: Callable[[Sequence[Piece]], Iterator[StoredBatch | TaskMessage]]
    ) -> list[TaskMessage]:
        """Run ``stage`` over each of ``tasks`` in a Spark task; store the batches and return the messages.

        Several threads may call it at once.
        """
        ...

    def publish(self, stage: PublishStage, packed: Mapping[TopicPartition, int] | None = None) -> list[TaskMessage]:
        """Run ``stage`` over all that is stored; return its messages.

        Task number ``packed[topic, partition]`` gets all batches of a topic-partition, in the order of
        `StoredBatch.order`. Without ``packed`` each task gets what the task of its number stored, in that order, and
        nothing is moved: after one `decode` only.
        """
        ...

    def clear(self) -> None:
        """Free all that is stored."""
        ...


def batch_store(spark: SparkTarget, folder: str | None) -> BatchStore:
    """The store for ``folder``, which is what `SparkTarget.local_folder` yields."""
    return ShuffledBatches(spark) if folder is None else LocalBatches(spark)


class LocalBatches:
    """The `BatchStore` of a local master, for stages that write payloads to files of a folder.

    The driver holds 200 bytes of a batch, of which a slice has one or a few for each of its topic-partitions. Through a
    shuffle of Spark's it would be a plan, tables in the JVM, a sort and Spark's SQL: as much work as to publish.
    """

    def __init__(self, spark: SparkTarget) -> None:
        self._spark = spark
        self._batches: list[StoredBatch] = []
        self._task_of: dict[int, int] = {}

    def decode(
        self, tasks: Sequence[Sequence[Piece]], stage: Callable[[Sequence[Piece]], Iterator[StoredBatch | TaskMessage]]
    ) -> list[TaskMessage]:
        """See `BatchStore`."""
        items = self._spark.results_of(tasks, stage)
        self._task_of |= {piece.number: number for number, task in enumerate(tasks) for piece in task}
        self._batches.extend([item for item in items if isinstance(item, StoredBatch)])  # at once: jobs end together
        return [item for item in items if not isinstance(item, StoredBatch)]

    def publish(self, stage: PublishStage, packed: Mapping[TopicPartition, int] | None = None) -> list[TaskMessage]:
        """See `BatchStore`."""
        numbers = set((self._task_of if packed is None else packed).values())
        tasks: list[tuple[int, list[StoredBatch]]] = [(number, []) for number in range(max(numbers, default=-1) + 1)]
        if packed is None:
            for batch in self._batches:
                tasks[self._task_of[batch.slice]][1].append(batch)
        else:
            for batch in sorted(self._batches, key=lambda batch: batch.order):
                tasks[packed[batch.topic_partition]][1].append(batch)
        return self._spark.results_of(tasks, lambda task: stage(*task))

    def clear(self) -> None:
        """See `BatchStore`."""
        self._batches, self._task_of = [], {}


_STORED = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True)
"""As they are while there is room in the JVM's memory, and only then on disk: the shuffle writes them there anyhow."""


class ShuffledBatches:
    """The `BatchStore` of any cluster and of a Connect server: Spark's memory and disks, and a shuffle.

    What was decoded are local checkpoints: where Spark loses some of them the run fails, and nothing is decoded again.
    """

    def __init__(self, spark: SparkTarget) -> None:
        self._spark = spark
        self._parts: list[DataFrame] = []
        for name, value in BATCH_CONF.items():
            spark.session.conf.set(name, value)

    def decode(
        self, tasks: Sequence[Sequence[Piece]], stage: Callable[[Sequence[Piece]], Iterator[StoredBatch | TaskMessage]]
    ) -> list[TaskMessage]:
        """See `BatchStore`."""
        # Lazily, so that the first pass over them makes the checkpoint.
        session = self._spark.session
        items = rows_of_tasks(session, tasks, lambda of_task: stored_batches(stage(of_task)), STORED_SCHEMA)
        part = items.localCheckpoint(eager=False, storageLevel=_STORED)
        self._parts.append(part)
        return messages_of(part.where(f"kind <> '{IS_BATCH}'").select("kind", "text").collect())

    def publish(self, stage: PublishStage, packed: Mapping[TopicPartition, int] | None = None) -> list[TaskMessage]:
        """See `BatchStore`."""

        def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return message_batches(stage(task_number(), batches_of(batches)))

        stored = reduce(lambda some, more: some.union(more), self._parts).where(f"kind = '{IS_BATCH}'")
        if packed is not None:
            stored = stored.repartitionById(len(set(packed.values())), _task_of(packed)).sortWithinPartitions(
                "topic", "partition", "slice", "number"
            )
        return messages_of(stored.select(*BATCH_COLUMNS).mapInArrow(publish, MESSAGE_SCHEMA).collect())

    def clear(self) -> None:
        """See `BatchStore`."""
        while self._parts:
            self._spark.forget_checkpoint(self._parts.pop())


def _task_of(packed: Mapping[TopicPartition, int]) -> Column:
    """The task of a batch, by a constant map: it costs neither a job nor a join. No topic's name has its signs."""
    tasks = "\n".join(f"{topic}/{partition}={task}" for (topic, partition), task in packed.items())
    name = F.concat("topic", F.lit("/"), F.col("partition").cast("string"))
    return F.element_at(F.str_to_map(F.lit(tasks), F.lit("\n"), F.lit("=")), name).cast("int")
