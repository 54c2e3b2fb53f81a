"""Metrics of all pipelines in Prometheus's text format."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse

from changefeed.airflow.freshness_dag import CHECKED_KEY, FRESHNESS_DAG_ID
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.errors import ChangefeedError
from changefeed.settings.pipeline import Pipeline
from changefeed_web import position, slots
from changefeed_web.activity import freshness, recent_dead_letters
from changefeed_web.dag_state import count_retries, dag_state, last_push
from changefeed_web.pipelines import all_pipelines
from changefeed_web.scrape import MetricsReaderDep

router = APIRouter(tags=["metrics"])

Sample = tuple[str, dict[str, str], float]


class Metric(NamedTuple):
    """A gauge: its meaning, and its labels."""

    meaning: str
    labels: tuple[str, ...] = ("pipeline",)


METRICS = {
    "changefeed_up": Metric("1 if checkpoint and source can be read and match, else 0"),
    "changefeed_commit_log_up": Metric(
        "1 if the commit log can be read, else 0; then there are no metrics of windows, freshness and snapshots"
    ),
    "changefeed_paused": Metric("1 if the pipeline's ingest DAG is paused, else 0"),
    "changefeed_last_run_retries": Metric("Retries of tasks of the last run"),
    "changefeed_lag_bytes": Metric("Bytes of binlog between checkpoint and head"),
    "changefeed_lag_seconds": Metric("Age in seconds of the oldest unpublished change of the pipeline's tables"),
    "changefeed_committed_at_seconds": Metric("Time of the last commit of the checkpoint, in Unix seconds"),
    "changefeed_retention_headroom_seconds": Metric("Seconds until the server purges the checkpoint's binlog file"),
    "changefeed_window": Metric("Number of the last sealed window"),
    "changefeed_last_window_rows": Metric(
        "Row changes of the last window by table and op", ("pipeline", "table", "op")
    ),
    "changefeed_last_window_bytes": Metric("Bytes of binlog of the last window"),
    "changefeed_last_window_seconds": Metric("Duration of the last window by phase, in seconds", ("pipeline", "phase")),
    "changefeed_freshness_seconds": Metric(
        "Seconds from the commit of the oldest change in the table's last window until Kafka had it; none if the table "
        "was idle for an hour",
        ("pipeline", "table"),
    ),
    "changefeed_freshness_p50_seconds": Metric(
        "Seconds from commit to Kafka that a change took at most, half of the time in the last hour"
    ),
    "changefeed_freshness_p99_seconds": Metric(
        "Seconds from commit to Kafka that a change took at most, 99 % of the time in the last hour"
    ),
    "changefeed_snapshot_chunks": Metric("Chunks that the last snapshot has published"),
    "changefeed_snapshot_rows": Metric("Rows that the last snapshot has read"),
    "changefeed_snapshot_rows_per_second": Metric("Rows per second of the last snapshot"),
    "changefeed_snapshot_seconds_left": Metric("Estimated seconds until the last snapshot is finished; 0 if it is"),
    "changefeed_verified_rows": Metric(
        "Rows that the last verification of a server found equal to the topics", ("pipeline", "server")
    ),
    "changefeed_differing_rows": Metric(
        "Rows and records that the last verification of a server found different", ("pipeline", "server")
    ),
    "changefeed_verified_at_seconds": Metric(
        "End of the last verification of a server, in Unix seconds", ("pipeline", "server")
    ),
    "changefeed_parked_tables": Metric("Tables that windows leave out after an error of their own"),
    "changefeed_recent_dead_letters": Metric(
        "Dead letters of windows sealed in the last hour; windows merged into an hour count until an hour after its end"
    ),
    "changefeed_freshness_checked_at_seconds": Metric(
        "Time at which the DAG changefeed_freshness last checked all pipelines, in Unix seconds", ()
    ),
}


@router.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(slots.scrape)])
def metrics(reader: MetricsReaderDep) -> str:
    """Metrics of all pipelines that you may see, in Prometheus's text format.

    The token in `Authorization: Bearer` is the site's `scrape_token`, which shows all pipelines, or one of Airflow.
    """
    pipelines, _, _ = all_pipelines()
    seen = [pipeline for name, pipeline in sorted(pipelines.items()) if reader.may_read(ingest_dag_id(name))]
    samples: list[Sample] = []
    if reader.may_read(FRESHNESS_DAG_ID) and (checked_at := last_push(FRESHNESS_DAG_ID, CHECKED_KEY)) is not None:
        samples.append(("changefeed_freshness_checked_at_seconds", {}, checked_at))
    for pipeline, reading in zip(seen, position.read_each(seen, _read), strict=True):
        samples += _samples(pipeline, reading or _Reading(position.NO_ANSWER))
    return text_of(samples)


class _Reading(NamedTuple):
    """What was read of a pipeline. If Kafka cannot be read, all but the position is empty. Without an answer in time it
    is not known whether there is a commit log."""

    status: dict[str, Any]
    last_window: dict[str, Any] | None = None
    snapshots: Sequence[dict[str, Any]] = ()
    reports: Sequence[dict[str, Any]] = ()
    freshness: dict[str, Any] | None = None
    dead_letters: int = 0
    has_commit_log: bool | None = None


def _read(pipeline: Pipeline) -> _Reading:
    status, now_ms = position.position(pipeline), int(time.time() * 1000)
    try:
        windows = position.sealed_windows(pipeline, status.get("checkpoint"))
        return _Reading(
            status,
            next(iter(position.manifests(pipeline, 1)), None),
            position.snapshots(pipeline),
            position.reports(pipeline),
            freshness(windows, now_ms, position.merged_freshness(pipeline)),
            recent_dead_letters(windows, position.merged_windows(pipeline, 3), now_ms),
            has_commit_log=True,
        )
    except ChangefeedError:
        return _Reading(status, has_commit_log=False)


def text_of(samples: Iterable[Sample]) -> str:
    """The samples in Prometheus's text format, by metric."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    lines = []
    for name, metric in METRICS.items():
        if name in by_name:
            lines += [f"# HELP {name} {metric.meaning}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{_labels(labels)}}} {_number(value)}" for _, labels, value in by_name[name]]
    return "\n".join(lines) + "\n"


def _samples(pipeline: Pipeline, reading: _Reading) -> Iterable[Sample]:
    status, last, snapshots, reports, fresh, letters, has_commit_log = reading
    of = {"pipeline": pipeline.name}
    yield "changefeed_up", of, 0 if status.get("error") else 1
    if has_commit_log is not None:
        yield "changefeed_commit_log_up", of, 1 if has_commit_log else 0
    dag = dag_state(ingest_dag_id(pipeline.name))
    yield "changefeed_paused", of, 1 if dag["paused"] else 0
    if dag["last_run"]:
        yield "changefeed_last_run_retries", of, count_retries(dag["dag_id"], dag["last_run"]["run_id"])
    for key in ("lag_bytes", "lag_seconds", "retention_headroom_seconds"):
        if status.get(key) is not None:
            yield f"changefeed_{key}", of, float(status[key])
    if "parked" in status:
        yield "changefeed_parked_tables", of, len(status["parked"])
    if status.get("committed_at_ms") is not None:
        yield "changefeed_committed_at_seconds", of, status["committed_at_ms"] / 1000
    for snapshot in snapshots[:1]:
        for key in ("chunks", "rows", "rows_per_second", "seconds_left"):
            if snapshot[key] is not None:
                yield f"changefeed_snapshot_{key}", of, snapshot[key]
    for report in reports:
        server = {**of, "server": report["follower"] or "source"}
        yield "changefeed_verified_rows", server, report["compared"]
        yield "changefeed_differing_rows", server, report["differing"]
        yield "changefeed_verified_at_seconds", server, report["finished_at_ms"] / 1000
    if fresh:
        for table, seconds in fresh["tables"].items():
            yield "changefeed_freshness_seconds", {**of, "table": table}, seconds
        for key in ("p50_seconds", "p99_seconds"):
            yield f"changefeed_freshness_{key}", of, fresh[key]
    if last is None:
        return
    yield "changefeed_window", of, last["window"]["number"]
    yield "changefeed_last_window_bytes", of, last["size_bytes"]
    for table, ops in last["rows"].items():
        for op, count in ops.items():
            yield "changefeed_last_window_rows", {**of, "table": table, "op": op}, count
    for phase, seconds in last["seconds"].items():
        yield "changefeed_last_window_seconds", {**of, "phase": phase}, seconds
    yield "changefeed_recent_dead_letters", of, letters


def _number(value: float) -> str:
    """The value with all its digits: with fewer, bytes and Unix times would be rounded."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _labels(labels: dict[str, str]) -> str:
    def escape(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())
