"""How far a run under way is with its current window, by the commit log and by the log of its task."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from changefeed.airflow.ingest_dag import INGEST_TASK, ingest_dag_id
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.progress_line import LOG_EVERY_SECONDS, TOPIC_PARTITIONS, Progress, read_log_text, read_web_page
from changefeed_web import position
from changefeed_web.dag_state import running_log
from changefeed_web.readings import Staleness, read_cached

_SEALED = "sealed window "
"""How the line of a sealed window begins in the log of a job."""


@dataclass(frozen=True)
class Stage:
    """A stage of the job by the last line that it logged: its progress, and for how long it has run."""

    name: str
    progress: Progress
    seconds: float

    @property
    def topic_partitions(self) -> int | None:
        """The number of topic-partitions that the stage publishes; None if it is another stage."""
        parts = self.progress.parts
        return parts.total if parts is not None and parts.name == TOPIC_PARTITIONS else None

    def to_json(self) -> dict[str, Any]:
        """Plain values for the REST API. The rate and the time left are averages of this stage."""
        messages, parts = self.progress.rows, self.progress.parts
        done, total = self.progress.done, self.progress.total
        counted = (done, total) if parts is None or parts.done is None else (parts.done, parts.total)
        return {
            "name": self.name,
            "done": done,
            "total": total,
            "parts": None if parts is None else asdict(parts),
            "messages": messages,
            "messages_per_second": None if messages is None else messages / self.seconds,
            "seconds_left": self.seconds * (counted[1] - counted[0]) / counted[0] if counted[0] else None,
        }


@dataclass(frozen=True)
class JobLog:
    """What the log of a job says: its current stage, and the address of Spark's web page; None until it says so."""

    stage: Stage | None
    spark_page: str | None


def read_job_log(lines: Iterable[str]) -> JobLog:
    """What the ``lines`` of the log of a job say.

    A stage logs a line every `LOG_EVERY_SECONDS`, so the number of its lines says for how long it has run.
    """
    stage, spark_page = None, None
    for line in lines:
        if line.startswith(_SEALED):
            stage = None  # the stages of the next window begin
        elif (read := read_log_text(line)) is not None:
            name, progress = read
            seconds = stage.seconds if stage is not None and stage.name == name else 0.0
            stage = Stage(name, progress, seconds + LOG_EVERY_SECONDS)
        else:
            spark_page = read_web_page(line) or spark_page
    return JobLog(stage, spark_page)


def current_window(planned: Sequence[int] | None, begun: Collection[int], *, publishes: bool) -> int | None:
    """The first of the ``planned`` windows that is begun and not sealed; None if there is none.

    ``planned`` is None before the run's plan, and empty if the run freezes its windows itself: then the window is that
    of the one run of the pipeline that ``publishes``. A newer run waits until it takes over.
    """
    if planned is None or not (planned or publishes):
        return None
    return min(set(planned) & set(begun) if planned else begun, default=None)


def live_progress(
    pipeline: Pipeline,
    run: Mapping[str, Any],
    planned: Sequence[int] | None,
    stale: Staleness,
    *,
    logs: bool,
    publishes: bool,
) -> dict[str, Any]:
    """What ``run``, one under way of `dag_state.runs`, has done of its current window; ``planned`` and ``publishes``
    are those of `current_window`.

    ``window`` is its number, None while none is begun. ``topic_partitions`` and ``messages`` are those that all its
    attempts have committed to Kafka. ``topic_partitions_total`` is known when the job publishes what it decoded.
    ``stage`` is that of the job, ``spark_page`` the address of Spark's web page. These three are None without ``logs``,
    until the job logs them, and of continuous runs, whose windows take seconds and whose logs are long.
    Raises ChangefeedError if the commit log cannot be read.
    """
    from changefeed.pipeline.open_windows import progress_in_window

    log = position.commit_log(pipeline, stale)
    number = current_window(planned, log.begun, publishes=publishes)
    published = progress_in_window(log.begun[number], log.progress).values() if number is not None else ()
    is_read = logs and planned and run["state"] == "running"
    job = _job_log(pipeline, run["run_id"]) if is_read else JobLog(None, None)
    return {
        "window": number,
        "topic_partitions": sum(each.published > 0 for each in published),
        "topic_partitions_total": None if job.stage is None else job.stage.topic_partitions,
        "messages": sum(each.messages for each in published),
        "stage": None if job.stage is None else job.stage.to_json(),
        "spark_page": job.spark_page,
    }


def _job_log(pipeline: Pipeline, run_id: str) -> JobLog:
    def read() -> tuple[str, JobLog]:
        return run_id, read_job_log(running_log(ingest_dag_id(pipeline.name), run_id, INGEST_TASK))

    of_run, job = read_cached("stage", pipeline, read, Staleness())
    return job if of_run == run_id else JobLog(None, None)
