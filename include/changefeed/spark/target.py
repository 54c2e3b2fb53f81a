"""Where a run's tasks are executed: by a JVM of this process (local, or a cluster's driver) or a Spark Connect server.

`spark.session.session` opens a `SparkTarget` for a pipeline. All that differs between the kinds of Spark is here.
Stages with a shuffle use its `session` for DataFrames, which both kinds have.
"""

from __future__ import annotations

import logging
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark import SparkContext, SparkFiles, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changefeed.errors import SettingsError
from changefeed.spark.conf import is_local
from changefeed.spark.warm_up import load

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

Given = TypeVar("Given")
Result = TypeVar("Result")


class Counter(Protocol):
    """A sum that tasks add to and the driver reads."""

    value: int

    def add(self, term: int) -> None:
        """Add ``term``; called in tasks."""
        ...


class Tasks(Protocol):
    """The tasks of the jobs that are watched. Jobs may run at once, each in a thread of its own."""

    total: int

    def expect(self, tasks: int) -> None:
        """Say that the next job of the calling thread has ``tasks`` tasks."""
        ...

    def done(self) -> int:
        """How many of all expected tasks are done."""
        ...

    def close(self) -> None:
        """Watch no more jobs."""
        ...


class SparkTarget(Protocol):
    """The Spark that a run has. It lives in the driver; the functions of tasks must not refer to it."""

    @property
    def session(self) -> SparkSession:
        """For DataFrames. Spark's SQL is started in the JVM when the first of them is made."""
        ...

    @property
    def may_copy_tasks(self) -> bool:
        """Whether Spark may start a second copy of a slow task (spark.speculation)."""
        ...

    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def local_folder(self) -> AbstractContextManager[str | None]:
        """A folder for what the driver and tasks hand to one another, which only this user may enter; removed at the
        end of the block. None unless all tasks run on the driver's machine."""
        ...

    def warm_up(self, workers: int) -> Callable[[], None]:
        """Start ``workers`` Python workers that import what tasks need, unless they were started before; return what
        waits for them.

        That raises SettingsError if the workers of a Connect server lack the package. Any other error is logged only:
        the tasks meet it themselves.
        """
        ...

    def results_of(self, tasks: Sequence[Given], stage: Callable[[Given], Iterable[Result]]) -> list[Result]:
        """Call ``stage`` with each of ``tasks``, in a Spark task of its own; return all that they yield, task by task.

        A result is a `TaskMessage`; where there is a `local_folder`, anything that can be pickled.
        """
        ...

    def tag_jobs(self, tag: str) -> None:
        """Tag the jobs that the calling thread starts from now on, for `end_jobs`."""
        ...

    def end_jobs(self, tag: str) -> None:
        """End the running jobs with this tag, in all threads."""
        ...

    def forget_checkpoint(self, checkpointed: DataFrame) -> None:
        """Free the disk that a local checkpoint takes."""
        ...

    def watch_tasks(self, what: str) -> Tasks:
        """Watch the tasks of jobs, which Spark shows as ``what``. Close the result."""
        ...

    def counter(self) -> Counter | None:
        """A new counter; None where Spark has none."""
        ...


class _WarmingSpark(ABC):
    """Starts workers ahead of their tasks, each once."""

    def __init__(self) -> None:
        self._started = 0
        self._starting: list[Thread] = []
        self._error: Exception | None = None

    def warm_up(self, workers: int) -> Callable[[], None]:
        """See `SparkTarget`."""
        missing = workers - self._started

        def start() -> None:
            try:
                self._start_workers(missing)
            except Exception as error:
                self._error = error

        if missing > 0:
            self._started += missing
            self._starting.append(Thread(target=start, name="changefeed-warm-up", daemon=True))
            self._starting[-1].start()
        return self._wait_for_workers

    @abstractmethod
    def _start_workers(self, count: int) -> None: ...

    def _wait_for_workers(self) -> None:
        for thread in self._starting:
            thread.join()
        if self._error is not None:
            self._check_start(self._error)
            _log.debug("workers were not started ahead of their tasks: %s", self._error)

    def _check_start(self, error: Exception) -> None:  # noqa: B027 - most errors are met again by the tasks
        """Raise an error that makes the run pointless."""


class ClassicSpark(_WarmingSpark):
    """A JVM of this process, on a local master or as the driver of a cluster.

    Stages without a shuffle are tasks of RDDs: a DataFrame costs a session of Spark's SQL in the JVM, a plan, generated
    code and an import of pandas before its first task begins, 2 CPU seconds.
    """

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self.session = session

    @property
    def runs_here(self) -> bool:
        """Whether all tasks run on this machine."""
        return is_local(self.session.sparkContext.master or "")

    @property
    def may_copy_tasks(self) -> bool:
        """See `SparkTarget`."""
        return self.session.sparkContext.getConf().get("spark.speculation", "false") == "true"

    def cores(self) -> int:
        """See `SparkTarget`."""
        return max(1, self.session.sparkContext.defaultParallelism)

    def local_folder(self) -> AbstractContextManager[str | None]:
        """See `SparkTarget`. It is where Spark stores its own blocks (spark.local.dir): the JVM removes what is there
        when it ends, which it does when the driver is killed."""
        if not self.runs_here:
            return nullcontext()
        folder = SparkFiles.getRootDirectory()
        return tempfile.TemporaryDirectory(prefix="changefeed-", dir=folder, ignore_cleanup_errors=True)

    def _start_workers(self, count: int) -> None:
        self.session.sparkContext.parallelize(range(count), count).foreachPartition(load)

    def results_of(self, tasks: Sequence[Given], stage: Callable[[Given], Iterable[Result]]) -> list[Result]:
        """See `SparkTarget`. Where all tasks run here, ``stage`` and the passwords in it come to them in a private
        file: what Spark brings to a task itself is stored as blocks until somebody looks for garbage."""
        with self.local_folder() as folder:
            task = _of_file(_stored(stage, folder)) if folder else stage

            def of_task(given: Iterable[Given]) -> Iterator[Result]:
                for each in given:
                    yield from task(each)

            return self.session.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(of_task).collect()

    def tag_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.sparkContext.addJobTag(tag)  # a session's own tags are known to the thread that set them only

    def end_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.sparkContext.cancelJobsWithTag(tag)

    def forget_checkpoint(self, checkpointed: DataFrame) -> None:
        """See `SparkTarget`."""
        plan: Any = checkpointed._jdf.queryExecution().logical()
        plan.rdd().unpersist(False)

    def watch_tasks(self, what: str) -> Tasks:
        """See `SparkTarget`."""
        return _ClassicTasks(self.session.sparkContext, what)

    def counter(self) -> Counter:
        """See `SparkTarget`."""
        return self.session.sparkContext.accumulator(0)


class ConnectSpark(_WarmingSpark):
    """A client of a Spark Connect server, which has no SparkContext and no accumulators: all is DataFrames."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self.session = session

    @property
    def may_copy_tasks(self) -> bool:
        """See `SparkTarget`."""
        return self.session.conf.get("spark.speculation", "false") == "true"

    def cores(self) -> int:
        """See `SparkTarget`."""
        ((last,),) = self.session.range(0, 10_000).select(F.spark_partition_id()).tail(1)
        return int(last) + 1

    def local_folder(self) -> AbstractContextManager[None]:
        """See `SparkTarget`: the server is reached over a network."""
        return nullcontext()

    def _start_workers(self, count: int) -> None:
        def loaded(batches: Iterator[Any]) -> Iterator[Any]:
            load()
            return batches

        self.session.range(0, count, 1, count).mapInArrow(loaded, "id long").collect()

    def _check_start(self, error: Exception) -> None:
        if "No module named" in str(error):
            raise SettingsError(
                "the workers of the Spark Connect server that `spark.connect` names cannot import `changefeed`: "
                "install the package for the Python that the server runs (PYSPARK_PYTHON), or put its folder on its "
                f"PYTHONPATH. Found: {str(error)[-300:]}"
            ) from error

    def results_of(self, tasks: Sequence[Given], stage: Callable[[Given], Iterable[Any]]) -> list[Any]:
        """See `SparkTarget`. They come as JSON: the driver unpickles nothing that a server sent."""
        from changefeed.spark.stages.messages import MESSAGE_SCHEMA, message_batches, messages_of

        rows = rows_of_tasks(self.session, tasks, lambda given: message_batches(stage(given)), MESSAGE_SCHEMA)
        return messages_of(rows.collect())

    def tag_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.addTag(tag)

    def end_jobs(self, tag: str) -> None:
        """See `SparkTarget`."""
        self.session.interruptTag(tag)

    def forget_checkpoint(self, checkpointed: DataFrame) -> None:
        """See `SparkTarget`. The server frees it when nobody refers to it; an exception may, until the run ends."""
        relation: Any = checkpointed._plan
        relation.__del__()

    def watch_tasks(self, what: str) -> Tasks:  # noqa: ARG002 - the server has no place for it
        """See `SparkTarget`."""
        return _ConnectTasks(self.session)

    def counter(self) -> None:
        """See `SparkTarget`."""
        return


def _stored(stage: object, folder: str) -> Path:
    file = Path(folder, "stage")
    file.touch(0o600)
    file.write_bytes(cloudpickle.dumps(stage))  # type: ignore[no-untyped-call]
    return file


def _of_file(file: Path) -> Callable[[Any], Iterable[Any]]:
    """The stage that is stored in ``file``, read in the task."""

    def stage(given: Any) -> Iterable[Any]:
        return cloudpickle.loads(file.read_bytes())(given)  # type: ignore[no-any-return]

    return stage


def rows_of_tasks(
    session: SparkSession,
    tasks: Sequence[Given],
    stage: Callable[[Given], Iterable[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """What ``stage`` yields for each of ``tasks``: in a Spark partition, and so a task, of its own.

    Tasks travel with the stage: rows of a DataFrame that Python made would come out of a second Python worker beside
    each task's own.
    """

    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from stage(tasks[number])

    return session.range(0, len(tasks), 1, len(tasks)).mapInArrow(of_task, schema)


class _ClassicTasks:
    """Each thread's job has a job group of its own, by which Spark's status tracker finds its stages."""

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
        ours = [stage for stage in stages if stage and stage.numTasks == tasks]  # others move the rows
        return max(ours, key=lambda stage: stage.stageId).numCompletedTasks if ours else 0

    def close(self) -> None:
        pass


class _ConnectTasks:
    """The server reports the stages of each operation while it runs."""

    def __init__(self, session: Any) -> None:
        self._session, self.total = session, 0
        self._sizes: set[int] = set()
        self._done: dict[str, int] = {}
        session.registerProgressHandler(self._take)

    def expect(self, tasks: int) -> None:
        self._sizes.add(tasks)
        self.total += tasks

    def _take(self, stages: list[Any], operation_id: str, **_: Any) -> None:
        ours = [stage.num_completed_tasks for stage in stages if stage.num_tasks in self._sizes]  # others move the rows
        self._done[operation_id] = max(ours, default=self._done.get(operation_id, 0))

    def done(self) -> int:
        return min(self.total, sum(list(self._done.values())))

    def close(self) -> None:
        self._session.removeProgressHandler(self._take)
