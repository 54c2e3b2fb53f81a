"""How far a run under way is with its current window, by the commit log and by the log of its task."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from changefeed.airflow.ingest_dag import INGEST_TASK, ingest_dag_id
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.progress_line import LOG_EVERY_SECONDS, Progress, read_log_text
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

    def to_json(self) -> dict[str, Any]:
        """Plain values for the REST API. The rate and the time left are averages of this stage."""
        done, total, messages = self.progress.done, self.progress.total, self.progress.rows
        return {
            "name": self.name,
            "done": done,
            "total": total,
            "messages": messages,
            "messages_per_second": None if messages is None else messages / self.seconds,
            "seconds_left": self.seconds * (total - done) / done if done else None,
        }


def last_stage(lines: Iterable[str]) -> Stage | None:
    """The stage in which a job is, by the ``lines`` of its log; None before the first line about one.

    A stage logs a line every `LOG_EVERY_SECONDS`, so the number of its lines says for how long it has run.
    """
    stage: Stage | None = None
    for line in lines:
        if line.startswith(_SEALED):
            stage = None  # the stages of the next window begin
        elif (read := read_log_text(line)) is not None:
            name, progress = read
            seconds = stage.seconds if stage is not None and stage.name == name else 0.0
            stage = Stage(name, progress, seconds + LOG_EVERY_SECONDS)
    return stage


def current_window(planned: Sequence[int] | None, begun: Collection[int]) -> int | None:
    """The first of the ``planned`` windows that is begun and not sealed; None if there is none.

    ``planned`` is empty if the run freezes its windows itself, and None before its plan. Only one run of a pipeline
    publishes at a time.
    """
    if planned is None:
        return None
    return min(set(planned) & set(begun) if planned else begun, default=None)


def live_progress(
    pipeline: Pipeline, run: Mapping[str, Any], planned: Sequence[int] | None, stale: Staleness, *, logs: bool
) -> dict[str, Any]:
    """What ``run``, one under way of `dag_state.runs`, has done of its current window; ``planned`` is that of
    `current_window`.

    ``window`` is its number, None while none is begun. ``topic_partitions`` and ``messages`` are those that all its
    attempts have committed to Kafka. ``stage`` is that of the job; None without ``logs``, until the job logs one, and
    of continuous runs, whose windows take seconds and whose logs are long.
    Raises ChangefeedError if the commit log cannot be read.
    """
    from changefeed.pipeline.open_windows import progress_in_window

    log = position.commit_log(pipeline, stale)
    number = current_window(planned, log.begun)
    published = progress_in_window(log.begun[number], log.progress).values() if number is not None else ()
    stage = _stage_of(pipeline, run["run_id"]) if logs and planned and run["state"] == "running" else None
    return {
        "window": number,
        "topic_partitions": sum(each.messages > 0 for each in published),
        "messages": sum(each.messages for each in published),
        "stage": None if stage is None else stage.to_json(),
    }


def _stage_of(pipeline: Pipeline, run_id: str) -> Stage | None:
    def read() -> tuple[str, Stage | None]:
        return run_id, last_stage(running_log(ingest_dag_id(pipeline.name), run_id, INGEST_TASK))

    of_run, stage = read_cached("stage", pipeline, read, Staleness())
    return stage if of_run == run_id else None
