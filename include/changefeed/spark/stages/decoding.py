"""Decode a window of many slices in Spark jobs while the window is still being cut."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from types import TracebackType
from typing import Self

from changefeed.model.window import Slice
from changefeed.spark.progress import StageCount
from changefeed.spark.stages.batch_store import BatchStore
from changefeed.spark.stages.decode import decode_slices
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.messages import DecodedSlice, Failure, StoredBatch, TaskMessage
from changefeed.spark.target import SparkTarget, Tasks

_JOBS_AT_ONCE = 32
"""How many jobs run in parallel. Spark starts the tasks of the earliest job first."""


class Decoding:
    """Decodes slices into a store, in one Spark job for each `add`; a context manager.

    At the end of the block, also after an error, no job runs any more, and the store is empty.
    """

    def __init__(self, spark: SparkTarget, count: StageCount, store: BatchStore) -> None:
        self._spark, self._count, self._store = spark, count, store
        self._tag = f"changefeed-decode-{uuid.uuid4().hex}"
        self._threads: ThreadPoolExecutor | None = None
        self._jobs: list[Future[list[TaskMessage]]] = []
        self._unread: list[Future[list[TaskMessage]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for job in self._jobs:
            job.cancel()
        while wait(self._jobs, timeout=0.5).not_done:
            self._spark.end_jobs(self._tag)  # repeated, as a job may just have begun
        if self._threads is not None:
            self._threads.shutdown()
        self._store.clear()

    def add(self, task: DecodeTask, slices: Sequence[Slice], shown: Tasks) -> None:
        """Start a job that decodes ``slices``, the next slices of ``task``."""
        if self._threads is None:
            # In parallel jobs, tasks with the same number would have the same server_id.
            is_alone = task.reads_one_by_one or task.server_ids.ids
            self._threads = ThreadPoolExecutor(1 if is_alone else _JOBS_AT_ONCE, "changefeed-decode")
        self._count.total += len(slices)
        self._jobs.append(self._threads.submit(self._decode, task, slices, shown))
        self._unread.append(self._jobs[-1])

    def _decode(self, task: DecodeTask, slices: Sequence[Slice], shown: Tasks) -> list[TaskMessage]:
        count = self._count

        def stage(of_task: Sequence[Slice]) -> Iterator[StoredBatch | DecodedSlice | Failure]:
            for message in decode_slices(task, of_task, count.add_messages):
                if isinstance(message, DecodedSlice):
                    count.add_part()
                yield message

        tasks = divide_slices(slices, task.readers(len(slices)))
        self._spark.tag_jobs(self._tag)
        shown.expect(len(tasks))
        return self._store.decode(tasks, stage)

    def read_ended(self) -> Iterator[TaskMessage]:
        """The messages of the jobs that ended since the last call; raises what Spark raises."""
        ended = [job for job in self._unread if job.done()]
        self._unread = [job for job in self._unread if job not in ended]
        for job in ended:
            yield from job.result()

    def read_remaining(self) -> Iterator[TaskMessage]:
        """The messages of all other jobs, as each ends; raises what Spark raises."""
        for job in as_completed(self._unread):
            yield from job.result()


def divide_slices(slices: Sequence[Slice], most: int) -> list[list[Slice]]:
    """Divide ``slices`` among at most ``most`` tasks of similar size: the largest first, each to the task with the
    least bytes."""
    ordered = sorted(slices, key=lambda slice: -slice.size_bytes)
    if most >= len(ordered):
        return [[slice] for slice in ordered]
    tasks: list[list[Slice]] = [[] for _ in range(most)]
    loads = [(0, number) for number in range(most)]
    for slice in ordered:
        size_bytes, number = heapq.heappop(loads)
        tasks[number].append(slice)
        heapq.heappush(loads, (size_bytes + slice.size_bytes, number))
    return tasks
