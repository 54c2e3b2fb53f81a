"""Finished batches in files, where all tasks share the driver's machine: Spark moves nothing.

The driver knows of each batch where it lies, and sends that to the task that publishes it. Through a shuffle of Spark's
it would be a plan, tables in the JVM, a sort and Spark's SQL, which costs as much as it takes to publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pyspark import SparkContext

from changefeed.kafka.progress import TopicPartition
from changefeed.spark import frame
from changefeed.spark.decode import decoded_rows
from changefeed.spark.decoding import Results
from changefeed.spark.expected import SliceCounts
from changefeed.spark.job import IngestJob, task_number
from changefeed.spark.publish import publish_batches
from changefeed.spark.slices import shared_out
from changefeed.spark.tasks import rows_of_tasks
from changefeed.window import Slice

_ToPublish = tuple[list[frame.DecodedRow], SliceCounts]
"""The batches of one task, in order, and what it has to find in them."""


class FiledBatches:
    """`KeptBatches` of a local master, in the files of jobs with a folder.

    The driver holds 200 bytes of a batch, of which a slice has one or a few for each of its topic-partitions.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._batches: list[frame.DecodedRow] = []

    def decoding(self, job: IngestJob, slices: Sequence[Slice], count: Callable[[int], None]) -> Callable[[], Results]:
        """See `KeptBatches`."""

        def decode(of_task: Sequence[Slice]) -> Iterator[frame.DecodedRow]:
            return decoded_rows(job, of_task, count)

        def run() -> Results:
            rows = rows_of_tasks(self._context, shared_out(slices, job.server_ids.tasks(len(slices))), decode)
            self._batches.extend([row for row in rows if row[0] == frame.BATCH])  # at once: jobs end together
            return [(row[0], row[-1] or "") for row in rows if row[0] != frame.BATCH]

        return run

    def published(
        self,
        job: IngestJob,
        packed: Mapping[TopicPartition, int],
        expected: SliceCounts,
        count: Callable[[int], None],
    ) -> Results:
        """See `KeptBatches`."""

        def publish(given: _ToPublish) -> Iterator[tuple[str, str]]:
            batches, mine = given
            return publish_batches(job, task_number(), map(frame.finished_batch, batches), count, mine)

        rows: list[list[frame.DecodedRow]] = [[] for _ in set(packed.values())]
        for row in sorted(self._batches, key=frame.order_of):
            rows[packed[frame.order_of(row)[:2]]].append(row)
        counts: list[dict[TopicPartition, Sequence[tuple[int, int]]]] = [{} for _ in rows]
        for partition, of_slices in expected.items():
            counts[packed[partition]][partition] = of_slices
        tasks: list[_ToPublish] = list(zip(rows, counts, strict=True))
        return rows_of_tasks(self._context, tasks, publish)

    def forget(self) -> None:
        """See `KeptBatches`."""
        self._batches = []
