"""Finished batches in Spark's own memory and disks, which a shuffle takes to the tasks that publish them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from changefeed.kafka.progress import TopicPartition
from changefeed.spark import frame
from changefeed.spark.conf import BATCH_CONF
from changefeed.spark.decode import decode_batches
from changefeed.spark.decoding import Results
from changefeed.spark.expected import SliceCounts
from changefeed.spark.job import IngestJob, task_number
from changefeed.spark.publish import publish_batches
from changefeed.spark.session import forget_checkpoint
from changefeed.spark.slices import over_tasks, shared_out
from changefeed.window import Slice

_KEPT = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True)
"""As they are while there is room in the JVM's memory, and only then on disk: the shuffle writes them there anyhow."""

_COLUMNS = ("topic", "partition", "origin", "slice", "number", "before", "payload", "text")


class ShuffledBatches:
    """`KeptBatches` of any cluster.

    What was decoded are local checkpoints: where Spark loses some of them the run fails, and nothing is decoded again.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._parts: list[DataFrame] = []
        for name, value in BATCH_CONF.items():
            spark.conf.set(name, value)

    def decoding(self, job: IngestJob, slices: Sequence[Slice], count: Callable[[int], None]) -> Callable[[], Results]:
        """See `KeptBatches`."""

        def decode(of_task: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
            return decode_batches(job, of_task, count)

        def run() -> Results:
            rows = part.where("kind <> 'batch'").select("kind", "text").collect()
            return [(row.kind, row.text) for row in rows]

        # Lazily, so that the first pass over them makes the checkpoint.
        tasks = shared_out(slices, job.server_ids.tasks(len(slices)))
        part = over_tasks(self._spark, tasks, decode, frame.DECODED_SCHEMA).localCheckpoint(
            eager=False, storageLevel=_KEPT
        )
        self._parts.append(part)
        return run

    def published(
        self,
        job: IngestJob,
        packed: Mapping[TopicPartition, int],
        expected: SliceCounts,
        count: Callable[[int], None],
    ) -> Results:
        """See `KeptBatches`."""

        def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task = task_number()
            mine = {partition: counts for partition, counts in expected.items() if packed[partition] == task}
            for kind, text in publish_batches(job, task, frame.finished_batches(batches), count, mine):
                yield frame.published_batch(kind, text)

        decoded = reduce(lambda some, more: some.union(more), self._parts).where("kind = 'batch'")
        shuffled = decoded.repartitionById(len(set(packed.values())), _task_of(packed)).sortWithinPartitions(
            "topic", "partition", "slice", "number"
        )
        rows = shuffled.select(*_COLUMNS).mapInArrow(publish, frame.PUBLISHED_SCHEMA).collect()
        return [(row.kind, row.text) for row in rows]

    def forget(self) -> None:
        """See `KeptBatches`."""
        for part in self._parts:
            forget_checkpoint(part)


def _task_of(packed: Mapping[TopicPartition, int]) -> Column:
    """The task of a batch, by a constant map: it costs neither a job nor a join. No topic's name has its signs."""
    tasks = "\n".join(f"{topic}/{partition}={task}" for (topic, partition), task in packed.items())
    name = F.concat("topic", F.lit("/"), F.col("partition").cast("string"))
    return F.element_at(F.str_to_map(F.lit(tasks), F.lit("\n"), F.lit("=")), name).cast("int")
