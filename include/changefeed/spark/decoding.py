"""The decode stage of a window of many slices: jobs whose batches Spark keeps until they are published."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from functools import reduce
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from changefeed.spark import frame
from changefeed.spark.decode import decode_batches
from changefeed.spark.job import IngestJob
from changefeed.spark.progress import MessageCount, Tasks
from changefeed.spark.session import end_jobs, forget_checkpoint, tag_jobs
from changefeed.spark.slices import over_slices
from changefeed.window import Slice

Results = list[tuple[str, str]]

_KEPT = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True)
"""As they are while there is room in the JVM's memory, and only then on disk: the shuffle writes them there anyhow."""

_JOBS_AT_ONCE = 32
"""Spark starts the tasks of the earliest first."""


class Decoding:
    """Decodes slices as they are added, in a Spark job for each addition; a context manager.

    What was decoded are local checkpoints: where Spark loses some of them the run fails. It would decode a persisted
    slice again, and that may come out shorter, from a source that is away by then.

    At the end of the block no job of it runs any more, however it ends, and Spark keeps nothing of it.
    """

    def __init__(self, spark: SparkSession, messages: MessageCount) -> None:
        self._spark, self._messages = spark, messages
        self._tag = f"changefeed-decode-{uuid.uuid4().hex}"
        self._threads: ThreadPoolExecutor | None = None
        self._parts: list[DataFrame] = []
        self._jobs: list[Future[Results]] = []
        self._unread: list[Future[Results]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for job in self._jobs:
            job.cancel()
        while wait(self._jobs, timeout=0.5).not_done:
            end_jobs(self._spark, self._tag)  # again and again: one may just have begun
        if self._threads is not None:
            self._threads.shutdown()
        for part in self._parts:
            forget_checkpoint(part)

    def add(self, job: IngestJob, slices: Sequence[Slice], shown: Tasks) -> None:
        """Begin to decode ``slices``, the next ones of ``job``."""
        count = self._messages.add

        def decode(of_task: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
            return decode_batches(job, of_task, count)

        # Lazily, so that the first pass over them makes the checkpoint.
        tasks = job.server_ids.tasks(len(slices))
        part = over_slices(self._spark, slices, tasks, decode, frame.DECODED_SCHEMA).localCheckpoint(
            eager=False, storageLevel=_KEPT
        )
        if self._threads is None:
            # In two jobs at once tasks of the same number would name the same server_id.
            self._threads = ThreadPoolExecutor(1 if job.server_ids.ids else _JOBS_AT_ONCE, "changefeed-decode")
        self._parts.append(part)
        self._jobs.append(self._threads.submit(self._run, part, len(slices), shown))
        self._unread.append(self._jobs[-1])

    def _run(self, part: DataFrame, slices: int, shown: Tasks) -> Results:
        tag_jobs(self._spark, self._tag)
        shown.expect(slices)
        rows = part.where("kind <> 'batch'").select("kind", "text").collect()
        return [(row.kind, row.text) for row in rows]

    def ended(self) -> Iterator[tuple[str, str]]:
        """Kind and text of the rows that are no batches, of the jobs that ended since the last call; raises what Spark
        raises."""
        ended = [job for job in self._unread if job.done()]
        self._unread = [job for job in self._unread if job not in ended]
        for job in ended:
            yield from job.result()

    def results(self) -> Iterator[tuple[str, str]]:
        """As `ended`, of all other jobs, as each ends."""
        for job in as_completed(self._unread):
            yield from job.result()

    @property
    def batches(self) -> DataFrame:
        """The finished batches of all slices that were added, when they are decoded."""
        return reduce(lambda some, more: some.union(more), self._parts).where("kind = 'batch'")
