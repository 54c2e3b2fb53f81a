"""Prometheus: its text form, written here, as it is a few lines."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse

from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.errors import ChangefeedError
from changefeed.settings.file import load_pipelines
from changefeed.settings.pipeline import Pipeline
from changefeed_web import position, slots
from changefeed_web.access import GetUserDep, may
from changefeed_web.dag_state import dag_state, retries

router = APIRouter(tags=["metrics"])

Sample = tuple[str, dict[str, str], float]

HELP = {
    "changefeed_up": ("gauge", "1 when checkpoint and source could be read and fit together"),
    "changefeed_paused": ("gauge", "1 when the pipeline's DAG is paused"),
    "changefeed_last_run_retries": ("gauge", "How often tasks of the last run were tried again"),
    "changefeed_lag_bytes": ("gauge", "Bytes of binlog between checkpoint and head"),
    "changefeed_lag_seconds": ("gauge", "Age of the oldest change that is not published"),
    "changefeed_retention_headroom_seconds": ("gauge", "Time until the server purges the checkpoint's binlog file"),
    "changefeed_window": ("gauge", "Number of the last sealed window"),
    "changefeed_last_window_rows": ("gauge", "Row changes of the last window by table and op"),
    "changefeed_last_window_bytes": ("gauge", "Bytes of binlog of the last window"),
    "changefeed_last_window_seconds": ("gauge", "Seconds of the last window by phase"),
    "changefeed_snapshot_chunks": ("gauge", "Chunks that the last snapshot has published"),
    "changefeed_snapshot_rows": ("gauge", "Rows that the last snapshot has read"),
    "changefeed_snapshot_rows_per_second": ("gauge", "Rows a second of the last snapshot"),
    "changefeed_snapshot_seconds_left": ("gauge", "Seconds that the last snapshot still takes, 0 when it is finished"),
    "changefeed_verified_rows": ("gauge", "Rows of a server that its last verification found equal in the topics"),
    "changefeed_differing_rows": ("gauge", "Rows and records that a server's last verification found differing"),
    "changefeed_verified_at_seconds": ("gauge", "When a server's last verification ended, in Unix time"),
    "changefeed_recent_dead_letters": ("gauge", "Dead letters of the windows that the commit log still has"),
}


@router.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(slots.survey)])
def metrics(user: GetUserDep) -> str:
    """All pipelines that you may see, for Prometheus (`authorization` with a token of Airflow's)."""
    pipelines, _ = load_pipelines()
    seen = [pipeline for name, pipeline in sorted(pipelines.items()) if may(user, "GET", ingest_dag_id(name))]
    samples: list[Sample] = []
    for pipeline, looked in zip(seen, position.of_each(seen, _look), strict=True):
        samples += _samples(pipeline, *(looked or (position.NO_ANSWER, [], [], [])))
    return text_of(samples)


_Looked = tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]


def _look(pipeline: Pipeline) -> _Looked:
    """Where it stands, its last windows, its snapshots and its last verifications."""
    stands = position.position(pipeline)
    try:
        return stands, position.manifests(pipeline, 100), position.snapshots(pipeline), position.reports(pipeline)
    except ChangefeedError:
        return stands, [], [], []


def text_of(samples: Iterable[Sample]) -> str:
    """Samples in Prometheus's text format."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    lines = []
    for name, (kind, meaning) in HELP.items():
        if name in by_name:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(labels)}}} {value:g}" for _, labels, value in by_name[name]]
    return "\n".join(lines) + "\n"


def _samples(
    pipeline: Pipeline,
    stands: dict[str, Any],
    windows: list[dict[str, Any]],
    snapshots: list[dict[str, Any]],
    reports: list[dict[str, Any]],
) -> Iterable[Sample]:
    of = {"pipeline": pipeline.name}
    yield "changefeed_up", of, 0 if stands.get("error") else 1
    dag = dag_state(ingest_dag_id(pipeline.name))
    yield "changefeed_paused", of, 1 if dag["paused"] else 0
    if dag["last_run"]:
        yield "changefeed_last_run_retries", of, retries(dag["dag_id"], dag["last_run"]["run_id"])
    for key in ("lag_bytes", "lag_seconds", "retention_headroom_seconds"):
        if stands.get(key) is not None:
            yield f"changefeed_{key}", of, float(stands[key])
    for snapshot in snapshots[:1]:
        for key in ("chunks", "rows", "rows_per_second", "seconds_left"):
            if snapshot[key] is not None:
                yield f"changefeed_snapshot_{key}", of, snapshot[key]
    for report in reports:
        server = {**of, "server": report["follower"] or "source"}
        yield "changefeed_verified_rows", server, report["compared"]
        yield "changefeed_differing_rows", server, report["differing"]
        yield "changefeed_verified_at_seconds", server, report["finished_at_ms"] / 1000
    if not windows:
        return
    last = windows[0]
    yield "changefeed_window", of, last["window"]["number"]
    yield "changefeed_last_window_bytes", of, last["size_bytes"]
    for table, ops in last["rows"].items():
        for op, count in ops.items():
            yield "changefeed_last_window_rows", {**of, "table": table, "op": op}, count
    for phase, seconds in last["seconds"].items():
        yield "changefeed_last_window_seconds", {**of, "phase": phase}, seconds
    letters = sum(receipt["dead_letters"] for window in windows for receipt in window["topics"])
    yield "changefeed_recent_dead_letters", of, letters


def _labels(labels: dict[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
