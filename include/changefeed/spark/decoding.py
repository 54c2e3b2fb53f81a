"""The decode stage of a window of many slices: jobs whose batches are kept until they are published."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from types import TracebackType
from typing import Protocol, Self

from pyspark.sql import SparkSession

from changefeed.kafka.progress import TopicPartition
from changefeed.spark.expected import SliceCounts
from changefeed.spark.job import IngestJob
from changefeed.spark.progress import MessageCount, Tasks
from changefeed.spark.session import end_jobs, tag_jobs
from changefeed.window import Slice

Results = list[tuple[str, str]]
"""Kind and text of rows that are no batches."""

_JOBS_AT_ONCE = 32
"""Spark starts the tasks of the earliest first."""


class KeptBatches(Protocol):
    """Where the finished batches of a window's slices wait until all are decoded, and how they get to the tasks that
    publish them. What of them is lost fails the run: a slice that is decoded again may come out shorter, from a
    source that is away by then."""

    def decoding(self, job: IngestJob, slices: Sequence[Slice], count: Callable[[int], None]) -> Callable[[], Results]:
        """A job of Spark that decodes ``slices`` and keeps their batches, ``count`` of whose messages is told."""
        ...

    def published(
        self,
        job: IngestJob,
        packed: Mapping[TopicPartition, int],
        expected: SliceCounts,
        count: Callable[[int], None],
    ) -> Results:
        """Publish all, each topic-partition in the task that ``packed`` says; see `publish.publish_batches`."""
        ...

    def forget(self) -> None:
        """Let go of all that is kept."""
        ...


class Decoding:
    """Decodes slices as they are added, in a Spark job for each addition; a context manager.

    At the end of the block no job of it runs any more, however it ends, and nothing of it is kept.
    """

    def __init__(self, spark: SparkSession, messages: MessageCount, batches: KeptBatches) -> None:
        self._spark, self._messages, self._batches = spark, messages, batches
        self._tag = f"changefeed-decode-{uuid.uuid4().hex}"
        self._threads: ThreadPoolExecutor | None = None
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
        self._batches.forget()

    def add(self, job: IngestJob, slices: Sequence[Slice], shown: Tasks) -> None:
        """Begin to decode ``slices``, the next ones of ``job``."""
        decode = self._batches.decoding(job, slices, self._messages.add)
        if self._threads is None:
            # In two jobs at once tasks of the same number would name the same server_id.
            self._threads = ThreadPoolExecutor(1 if job.server_ids.ids else _JOBS_AT_ONCE, "changefeed-decode")
        self._jobs.append(self._threads.submit(self._run, decode, len(slices), shown))
        self._unread.append(self._jobs[-1])

    def _run(self, decode: Callable[[], Results], slices: int, shown: Tasks) -> Results:
        tag_jobs(self._spark, self._tag)
        shown.expect(slices)
        return decode()

    def ended(self) -> Iterator[tuple[str, str]]:
        """What the jobs say that ended since the last call; raises what Spark raises."""
        ended = [job for job in self._unread if job.done()]
        self._unread = [job for job in self._unread if job not in ended]
        for job in ended:
            yield from job.result()

    def results(self) -> Iterator[tuple[str, str]]:
        """As `ended`, of all other jobs, as each ends."""
        for job in as_completed(self._unread):
            yield from job.result()
