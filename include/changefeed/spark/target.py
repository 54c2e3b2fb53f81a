"""The Spark that executes a run's tasks: on this machine, on a cluster, or on a Spark Connect server.

`spark.session.session` opens a `SparkTarget` for a pipeline. All that differs between the kinds of Spark is here.
Stages with a shuffle use its `session` for DataFrames, which all kinds have.
"""

from __future__ import annotations

import logging
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark import SparkContext, SparkFiles, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changefeed.spark.executor_watch import watch_executors
from changefeed.spark.failures import check_workers, raise_spark_failures
from changefeed.spark.job_file import discard_job_file
from changefeed.spark.warm_up import load

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

TaskInput = TypeVar("TaskInput")
Result = TypeVar("Result")


class Counter(Protocol):
    """A sum to which tasks add, and which the driver reads."""

    value: int

    def add(self, term: int) -> None:
        """Add ``term``; called in tasks."""
        ...


class Tasks(Protocol):
    """The tasks of the jobs that are watched. Jobs may run in parallel, each in its own thread."""

    total: int

    def expect(self, tasks: int) -> None:
        """Announce that the next job of the calling thread has ``tasks`` tasks."""
        ...

    def done(self) -> int:
        """The number of expected tasks that are done."""
        ...

    def close(self) -> None:
        """Watch no more jobs."""
        ...


class SparkTarget(Protocol):
    """The Spark of a run. It exists in the driver only; functions of tasks must not refer to it."""

    @property
    def session(self) -> SparkSession:
        """The session, for DataFrames. The first DataFrame starts Spark SQL in the JVM."""
        ...

    @property
    def may_copy_tasks(self) -> bool:
        """Whether Spark may start a second copy of a slow task (spark.speculation)."""
        ...

    def cores(self) -> int:
        """The number of tasks that run in parallel."""
        ...

    def keep_connected(self) -> None:
        """Send a server something, each minute without other requests, so that nothing between ends the connection
        unnoticed: the next request would then hang for a quarter of an hour. Raises SparkFailedError."""
        ...

    def local_folder(self) -> AbstractContextManager[str | None]:
        """A folder for files that the driver and tasks exchange, which only this user can enter; removed at the end of
        the block. None unless all tasks run on the driver's machine."""
        ...

    def warm_up(self, workers: int) -> Callable[[], None]:
        """Start ``workers`` Python workers that import the modules of tasks, unless they are started already; return a
        function that waits for them.

        The function raises SettingsError if the workers cannot start Python or cannot import the package. Any other
        error is only logged, as the tasks will raise it.
        """
        ...

    def results_of(self, tasks: Sequence[TaskInput], stage: Callable[[TaskInput], Iterable[Result]]) -> list[Result]:
        """Call ``stage`` with each of ``tasks`` in its own Spark task; return all results, task by task.

        A result is a `TaskMessage`, or, with a `local_folder`, any object that can be pickled.
        """
        ...

    def tag_jobs(self, tag: str) -> None:
        """Tag the jobs that the calling thread starts from now on, for `end_jobs`."""
        ...

    def end_jobs(self, tag: str) -> None:
        """End the running jobs with this tag in all threads."""
        ...

    def forget_checkpoint(self, checkpointed: DataFrame) -> None:
        """Free the storage of a local checkpoint."""
        ...

    def watch_tasks(self, what: str) -> Tasks:
        """Watch the tasks of jobs, which Spark shows as ``what``. The caller must close the result."""
        ...

    def counter(self) -> Counter | None:
        """A new counter; None on a Connect server."""
        ...


class _WarmingSpark(ABC):
    """Starts workers before their tasks, each once."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._started = 0
        self._starting: list[Thread] = []
        self._has_workers = False
        self._error: Exception | None = None
        """Why the first workers have not started."""

    def warm_up(self, workers: int) -> Callable[[], None]:
        """See `SparkTarget`."""
        missing = workers - self._started

        def start() -> None:
            try:
                self._start_workers(missing)
                self._has_workers = True
            except Exception as error:
                _log.debug("workers were not started ahead of their tasks: %s", error)
                self._started -= missing
                self._error = error

        if missing > 0:
            self._started += missing
            self._starting.append(Thread(target=start, name="changefeed-warm-up", daemon=True))
            self._starting[-1].start()
        return self._wait_for_workers

    @abstractmethod
    def _start_workers(self, count: int) -> None: ...

    def first_worker_error(self) -> Exception | None:
        """Wait for the workers that are being started; the error if none has started yet."""
        while self._starting:
            self._starting.pop().join()
        return None if self._has_workers else self._error

    def _wait_for_workers(self) -> None:
        if error := self.first_worker_error():
            check_workers(error)


class _ContextSpark:
    """What a JVM of this process offers: its SparkContext."""

    session: SparkSession

    @cached_property  # it reads all settings, one request to the JVM for each
    def may_copy_tasks(self) -> bool:
        """See `SparkTarget`."""
        return self.session.sparkContext.getConf().get("spark.speculation", "false") == "true"

    def cores(self) -> int:
        """See `SparkTarget`."""
        return max(1, self.session.sparkContext.defaultParallelism)

    def keep_connected(self) -> None:
        """See `SparkTarget`. The JVM is on this machine."""

    def tag_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.sparkContext.addJobTag(tag)  # tags of a session apply only to the thread that set them

    def end_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.sparkContext.cancelJobsWithTag(tag)

    def forget_checkpoint(self, checkpointed: DataFrame) -> None:
        """See `SparkTarget`."""
        plan: Any = checkpointed._jdf.queryExecution().logical()
        plan.rdd().unpersist(False)

    def watch_tasks(self, what: str) -> Tasks:
        """See `SparkTarget`."""
        return _ContextTasks(self.session.sparkContext, what)

    def counter(self) -> Counter:
        """See `SparkTarget`."""
        return self.session.sparkContext.accumulator(0)


class _RemoteSpark(_WarmingSpark):
    """Workers on other machines, which share no files with the driver. All stages are DataFrames, so a worker imports
    the modules of tasks once: Spark's RDDs and DataFrames have workers of their own."""

    def local_folder(self) -> AbstractContextManager[None]:
        """See `SparkTarget`."""
        return nullcontext()

    def _start_workers(self, count: int) -> None:
        def load_modules(batches: Iterator[Any]) -> Iterator[Any]:
            load()
            discard_job_file()
            return batches

        self.session.range(0, count, 1, count).mapInArrow(load_modules, "id long").collect()

    def results_of(self, tasks: Sequence[TaskInput], stage: Callable[[TaskInput], Iterable[Any]]) -> list[Any]:
        """See `SparkTarget`. Results travel as JSON, because the driver must not unpickle data from a server."""
        from changefeed.spark.stages.messages import MESSAGE_SCHEMA, message_batches, messages_of

        rows = rows_of_tasks(self.session, tasks, lambda task: message_batches(stage(task)), MESSAGE_SCHEMA)
        return messages_of(rows.collect())


class LocalSpark(_ContextSpark, _WarmingSpark):
    """A local master: the JVM of this process runs all tasks.

    Stages without a shuffle are tasks of RDDs. The first DataFrame would cost 2 CPU seconds before its first task: a
    session of Spark SQL, a plan, generated code and an import of pandas.
    """

    def local_folder(self) -> AbstractContextManager[str]:
        """See `SparkTarget`. It is in the folder of Spark's blocks (spark.local.dir), which the JVM removes when it
        ends, also if the driver is killed."""
        folder = SparkFiles.getRootDirectory()
        return tempfile.TemporaryDirectory(prefix="changefeed-", dir=folder, ignore_cleanup_errors=True)

    def _start_workers(self, count: int) -> None:
        self.session.sparkContext.parallelize(range(count), count).foreachPartition(load)

    def results_of(self, tasks: Sequence[TaskInput], stage: Callable[[TaskInput], Iterable[Result]]) -> list[Result]:
        """See `SparkTarget`. Tasks read ``stage``, which contains passwords, from a private file: Spark would store it
        in blocks until its next cleanup."""
        with self.local_folder() as folder:
            task = _load_stage(_store_stage(stage, folder))

            def of_task(inputs: Iterable[TaskInput]) -> Iterator[Result]:
                for each in inputs:
                    yield from task(each)

            return self.session.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(of_task).collect()


class ClusterSpark(_ContextSpark, _RemoteSpark):
    """The driver of a cluster, in a JVM of this process. Jobs that get no executor for
    ``executor_seconds`` are cancelled (`spark.executor_watch`)."""

    def __init__(self, session: SparkSession, executor_seconds: int) -> None:
        super().__init__(session)
        watch_executors(session.sparkContext, executor_seconds)

    def cores(self) -> int:
        """See `SparkTarget`: the cores of the executors that have registered when the first has started a worker.

        Raises what `raise_spark_failures` raises if none could.
        """
        with raise_spark_failures("the start of its first worker"):
            if error := self.first_worker_error():
                raise error
        return super().cores()


class ConnectSpark(_RemoteSpark):
    """A client of a Spark Connect server, which has no SparkContext and no accumulators."""

    @property
    def may_copy_tasks(self) -> bool:
        """See `SparkTarget`."""
        with raise_spark_failures("a reading of its settings"):
            return self.session.conf.get("spark.speculation", "false") == "true"

    def cores(self) -> int:
        """See `SparkTarget`."""
        with raise_spark_failures("the number of its cores"):
            ((last,),) = self.session.range(0, 10_000).select(F.spark_partition_id()).tail(1)
        return int(last) + 1

    def keep_connected(self) -> None:
        """See `SparkTarget`. It also keeps the server from ending the session, as it does after an idle hour."""
        with raise_spark_failures("a request while nothing was new"):
            self.session.conf.get("spark.app.name")

    def tag_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.addTag(tag)

    def end_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.interruptTag(tag)

    def forget_checkpoint(self, checkpointed: DataFrame) -> None:
        """See `SparkTarget`. The server frees it when no reference is left; an exception may hold one until the run
        ends."""
        relation: Any = checkpointed._plan
        relation.__del__()

    def watch_tasks(self, what: str) -> Tasks:  # noqa: ARG002 - the server does not show it
        """See `SparkTarget`."""
        return _ConnectTasks(self.session)

    def counter(self) -> None:
        """See `SparkTarget`."""
        return


def _store_stage(stage: object, folder: str) -> Path:
    file = Path(folder, "stage")
    file.touch(0o600)
    file.write_bytes(cloudpickle.dumps(stage))  # type: ignore[no-untyped-call]
    return file


def _load_stage(file: Path) -> Callable[[Any], Iterable[Any]]:
    """A stage that reads the stored stage from ``file`` in the task, and calls it."""

    def stage(task: Any) -> Iterable[Any]:
        return cloudpickle.loads(file.read_bytes())(task)  # type: ignore[no-any-return]

    return stage


def rows_of_tasks(
    session: SparkSession,
    tasks: Sequence[TaskInput],
    stage: Callable[[TaskInput], Iterable[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """The rows that ``stage`` yields for each of ``tasks``, each in its own Spark partition and so in its own task.

    The tasks are pickled with the stage. As rows of a DataFrame from Python they would need a second Python worker for
    each task.
    """

    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        discard_job_file()  # not each executor gets a task that warms it up
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from stage(tasks[number])

    return session.range(0, len(tasks), 1, len(tasks)).mapInArrow(of_task, schema)


class _ContextTasks:
    """Counts tasks of a JVM's jobs. Each thread's job has its own job group, with which Spark's status tracker finds
    its stages."""

    def __init__(self, context: SparkContext, what: str) -> None:
        self._context, self._what, self.total = context, what, 0
        self._tasks: dict[str, int] = {}

    def expect(self, tasks: int) -> None:
        group = f"changefeed-{self._what}-{uuid.uuid4().hex}"
        self._context.setJobGroup(group, f"changefeed: {self._what}")
        self._tasks[group] = tasks
        self.total += tasks

    def done(self) -> int:
        return sum(self._done_of(group, tasks) for group, tasks in list(self._tasks.items()))

    def _done_of(self, group: str, tasks: int) -> int:
        tracker = self._context.statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(group)
            if (info := tracker.getJobInfo(job))
            for stage in info.stageIds
        ]
        ours = [stage for stage in stages if stage and stage.numTasks == tasks]  # other stages move the rows
        return max(ours, key=lambda stage: stage.stageId).numCompletedTasks if ours else 0

    def close(self) -> None:
        pass


class _ConnectTasks:
    """Counts tasks of a Connect server's jobs: the server reports the stages of each operation while it runs."""

    def __init__(self, session: Any) -> None:
        self._session, self.total = session, 0
        self._sizes: set[int] = set()
        self._done: dict[str, int] = {}
        session.registerProgressHandler(self._take)

    def expect(self, tasks: int) -> None:
        self._sizes.add(tasks)
        self.total += tasks

    def _take(self, stages: list[Any], operation_id: str, **_: Any) -> None:
        ours = [
            stage.num_completed_tasks for stage in stages if stage.num_tasks in self._sizes
        ]  # other stages move the rows
        self._done[operation_id] = max(ours, default=self._done.get(operation_id, 0))

    def done(self) -> int:
        return min(self.total, sum(list(self._done.values())))

    def close(self) -> None:
        self._session.removeProgressHandler(self._take)
