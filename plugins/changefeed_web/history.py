"""REST routes that show windows, seeks, commit log, tables, schemas, binlog files, backfills, snapshots and
verifications.

While a server does not answer, the answers have the last known values, and ``stale`` says why and since when.
"""

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from changefeed.airflow.backfill_dag import backfill_dag_id
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.airflow.snapshot_dag import snapshot_dag_id
from changefeed.airflow.verify_dag import verify_dag_id
from changefeed.errors import ChangefeedError
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.verify import WAIT_SECONDS
from changefeed_web import position, slots
from changefeed_web.access import GetUserDep, has_permission, may_read_logs, require_permission
from changefeed_web.activity import (
    Ddl,
    SealedWindow,
    ddl_events,
    failure_events,
    latest,
    seek_events,
    snapshot_events,
    window_events,
)
from changefeed_web.dag_state import UNFINISHED_STATES, dag_state, failed_runs, outcomes, planned_windows, runs, runs_at
from changefeed_web.live_run import live_progress
from changefeed_web.pipelines import pipeline_of
from changefeed_web.readings import Staleness

router = APIRouter(tags=["history"])

Limit = Annotated[int, Query(ge=1, le=100, description="Number of entries, the latest first; 1 to 100.")]


@router.get("/pipelines/{name}/windows", dependencies=[Depends(slots.look)])
def windows(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """Manifests of the last windows, latest first: range, rows, bytes, offsets, seconds by phase.

    ``run`` is the run of the ingest DAG that froze the window; null if Airflow no longer has it. ``sealed_at_ms`` is
    when the window was sealed.

    ``merged`` are older windows, latest first, whose manifests are merged by the hour, and later the day, in which they
    were sealed (UTC): the number of ``windows``, ``first`` to ``last``, and the sums of their manifests. Each has its
    begin (``begins_ms``) and its length in ``hours``.
    """
    require_permission(user, "GET", name)
    stale = Staleness()
    manifests = position.manifests(pipeline_of(name), limit, stale)
    froze = runs_at(ingest_dag_id(name), [manifest["window"]["frozen_at_ms"] for manifest in manifests])
    shown = [{**manifest, "run": run} for manifest, run in zip(manifests, froze, strict=True)]
    merged = [one.to_json() for one in position.merged_windows(pipeline_of(name), limit, stale)]
    return {"windows": shown, "merged": merged, "stale": stale.to_json()}


@router.get("/pipelines/{name}/activity", dependencies=[Depends(slots.look)])
def events(name: str, user: GetUserDep, limit: Limit = 12) -> dict[str, Any]:
    """The last events, latest first: sealed windows, seeks and DDL statements, and snapshots and failed runs if you may
    read the runs of their DAGs. Windows of a continuous run are one event for each `run_for`.

    ``text`` says what happened at ``at_ms``, and ``tab`` is the tab of the page that shows more. A DDL statement has
    the time of the window that read it.
    """
    require_permission(user, "GET", name)
    stale, pipeline, dag_id = Staleness(), pipeline_of(name), ingest_dag_id(name)
    log = position.commit_log(pipeline, stale)
    windows = position.windows_in(log)
    snapshots = position.snapshots(pipeline, stale) if _may_read_runs(user, snapshot_dag_id(name)) else []
    failed = failed_runs(dag_id, limit) if _may_read_runs(user, dag_id) else []
    said = outcomes(dag_id, [run["run_id"] for run in failed])
    merged = latest(
        limit,
        window_events(windows, together_seconds=pipeline.windows.run_seconds if pipeline.windows else 0.0),
        seek_events(log.seeks.values()),
        snapshot_events(snapshots),
        failure_events(failed, said),
        ddl_events(_ddl(pipeline, windows, stale), windows),
    )
    return {"events": merged, "stale": stale.to_json()}


def _may_read_runs(user: Any, dag_id: str) -> bool:
    return has_permission(user, "GET", dag_id, run=True)


def _ddl(pipeline: Pipeline, windows: Sequence[SealedWindow], stale: Staleness) -> list[Ddl]:
    try:
        return position.ddl_statements(pipeline, windows[0].number if windows else 0, stale)
    except ChangefeedError:  # an unreadable history is shown by the view of schemas
        return []


@router.get("/pipelines/{name}/runs", dependencies=[Depends(slots.look)])
def ingest_runs(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """The last runs of the ingest DAG, latest first, failed and empty ones too.

    ``outcome`` says how far a run is, or how it ended. ``windows`` are the numbers of its windows that are sealed, and
    ``rows`` their rows. If first windows of the run may be merged, ``since_ms`` is the time since which both count,
    otherwise null; ``rows`` of such a run are null when it has ended. ``planned`` is the number of windows that the
    task `plan` froze; null if it froze none, or Airflow does not have it any more.
    ``seconds_left`` of a run under way is an estimate from the windows that it has sealed; null before the first one.

    ``live`` of a run under way has its current ``window`` (null if it publishes none, as before it takes over from an
    older run), and the ``topic_partitions`` and ``messages`` of it that are in Kafka; ``topic_partitions_total`` is
    known when the job has decoded all. Its ``stage`` is what the job last wrote to the log of its task, every ten
    seconds: its tasks that are ``done``, their ``parts`` (slices or topic-partitions), messages, rate and time left.
    ``parts.total`` of slices grows while the window is being cut, and ``parts.done`` is null if it is not known.
    ``spark_page`` is the address of Spark's web page, if `spark.conf` enables it. All three are null until the job logs
    them, for continuous runs, and if you may not read the log.

    ``may_cancel`` says that you may end a run of the pipeline.
    """
    require_permission(user, "GET", name)
    require_permission(user, "GET", name, run=True)
    pipeline, dag_id, stale = pipeline_of(name), ingest_dag_id(name), Staleness()
    logs = may_read_logs(user, dag_id)
    latest = runs(dag_id, limit)
    run_ids = [run["run_id"] for run in latest]
    said, planned = outcomes(dag_id, run_ids), planned_windows(dag_id, run_ids)
    windows = position.windows_in(position.commit_log(pipeline, stale))
    oldest = windows[-1] if windows and position.merged_windows(pipeline, 1, stale) else None
    sealed, publisher = _by_run(dag_id, latest, windows), _publishing_run(dag_id)
    shown = []
    for run in latest:
        own, plan, under_way = sealed[run["run_id"]], planned.get(run["run_id"]), run["state"] in UNFINISHED_STATES
        since_ms = _counted_since(run, plan, oldest)
        progress: dict[str, Any] = {
            "windows": sorted(window.number for window in own),
            "rows": sum(window.rows for window in own) if under_way or since_ms is None else None,
            "since_ms": since_ms,
            "planned": len(plan) if plan else None,
            "seconds_left": _seconds_left(own, plan) if under_way else None,
            "live": None,
        }
        if under_way:
            publishes = run["run_id"] == publisher
            progress["live"] = live_progress(pipeline, run, plan, stale, logs=logs, publishes=publishes)
        shown.append({**run, "outcome": _outcome(said[run["run_id"]], own), **progress})
    may_cancel = has_permission(user, "PUT", dag_id, run=True)
    return {"runs": shown, "may_cancel": may_cancel, "stale": stale.to_json()}


def _publishing_run(dag_id: str) -> str | None:
    """The run that publishes now: of two at work, the older one. None if no task is at work."""
    (run,) = runs_at(dag_id, [int(time.time() * 1000)])
    return run["run_id"] if run else None


def _outcome(said: str, windows: Sequence[SealedWindow]) -> str:
    """``said``, what `outcomes` says of a run, unless its ``windows`` have rows: a continuous run returns only the rows
    whose asset events it sent itself."""
    return "published" if said == "nothing new" and any(window.rows for window in windows) else said


def _by_run(
    dag_id: str, runs: Sequence[Mapping[str, Any]], windows: Sequence[SealedWindow]
) -> Mapping[str, list[SealedWindow]]:
    """Those of ``windows`` that each of ``runs`` of the DAG froze, by the run's id. A run may freeze hundreds."""
    found = defaultdict[str, list[SealedWindow]](list)
    first = min((datetime.fromisoformat(run["start"]).timestamp() for run in runs if run["start"]), default=math.inf)
    own = [window for window in windows if window.frozen_at_ms >= first * 1000]
    for window, run in zip(own, runs_at(dag_id, [window.frozen_at_ms for window in own]), strict=True):
        if run:
            found[run["run_id"]].append(window)
    return found


def _counted_since(run: Mapping[str, Any], planned: Sequence[int] | None, oldest: SealedWindow | None) -> int | None:
    """When ``oldest`` was frozen, the oldest window that is not merged, if older windows of the run may be merged; None
    if no windows are. A run without ``planned`` windows is a continuous one, and one with None froze none."""
    if oldest is None or planned is None or run["start"] is None:
        return None
    start_ms = datetime.fromisoformat(run["start"]).timestamp() * 1000
    is_counted = min(planned) >= oldest.number if planned else start_ms >= oldest.frozen_at_ms
    return None if is_counted else oldest.frozen_at_ms


def _seconds_left(sealed: Sequence[SealedWindow], planned: Sequence[int] | None) -> float | None:
    """The seconds until all ``planned`` windows are sealed, at the rate of those that are; None if none is."""
    if not sealed or not planned:
        return None
    took = max(window.sealed_at_ms for window in sealed) - min(window.frozen_at_ms for window in sealed)
    left = len(set(planned) - {window.number for window in sealed})
    return took / 1000 / len(sealed) * left


@router.get("/pipelines/{name}/seeks", dependencies=[Depends(slots.look)])
def seeks(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """The last seeks, latest first: user, time, old and new checkpoint, reason."""
    require_permission(user, "GET", name)
    stale = Staleness()
    records = position.commit_log(pipeline_of(name), stale).seeks
    shown = [records[number].to_json() for number in sorted(records, reverse=True)[:limit]]
    return {"seeks": shown, "stale": stale.to_json()}


@router.get("/pipelines/{name}/discards", dependencies=[Depends(slots.look)])
def discards(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """The last discards of dead letters, latest first: user, time, number, tables, offsets and reason."""
    require_permission(user, "GET", name)
    from changefeed.kafka.commit_log.records import DiscardRecord

    stale = Staleness()
    records = position.commit_log(pipeline_of(name), stale).of(DiscardRecord)
    latest_first = sorted(records, key=lambda record: record.at_ms, reverse=True)
    return {"discards": [record.to_json() for record in latest_first[:limit]], "stale": stale.to_json()}


@router.get("/pipelines/{name}/commit-log", dependencies=[Depends(slots.look)])
def commit_log(name: str, user: GetUserDep) -> dict[str, Any]:
    """The last message that a window published to each topic-partition, by the commit log, and what the topics of the
    captured tables contain, whatever wrote it.

    ``contents`` has the offsets of each partition and the time of its newest record (``newest_ms``; null before Kafka
    3.0).
    """
    require_permission(user, "GET", name)
    stale, pipeline = Staleness(), pipeline_of(name)
    by_partition = position.commit_log(pipeline, stale).progress
    topics = {topic for topic, _ in by_partition}
    with suppress(ChangefeedError):  # of the source; the page shows it
        topics |= set(position.topics(pipeline, stale).values())
    return {
        "progress": [
            {"topic": topic, "partition": partition, **progress.to_json()}
            for (topic, partition), progress in sorted(by_partition.items())
        ],
        "contents": position.contents(pipeline, topics, stale),
        "stale": stale.to_json(),
    }


@router.get("/pipelines/{name}/tables", dependencies=[Depends(slots.look)])
def tables(name: str, user: GetUserDep) -> dict[str, Any]:
    """Routing and transforms of each captured table: topic, partitions, key columns, format, excluded and masked
    columns, whether a condition filters rows, functions, and a sample message.

    The sample message has made-up values of the columns' types, masked without the pipeline's secrets; null for an
    outbox. Binary formats are shown as JSON.
    """
    require_permission(user, "GET", name)
    stale = Staleness()
    return {"tables": position.tables(pipeline_of(name), stale), "stale": stale.to_json()}


@router.get("/pipelines/{name}/schema", dependencies=[Depends(slots.look)])
def schema(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """The captured tables by the schema history, and the last DDL statements that changed them, latest first.

    ``until`` are the coordinates up to which the history is complete. Before the first window it is null, and the
    columns are those that the source has now.
    """
    require_permission(user, "GET", name)
    stale = Staleness()
    return {**position.schemas(pipeline_of(name), limit, stale), "stale": stale.to_json()}


@router.get("/pipelines/{name}/binlogs", dependencies=[Depends(slots.look)])
def binlogs(name: str, user: GetUserDep) -> dict[str, Any]:
    """The binlog files that the source has now, the newest first: at most 500; ``more`` says that it has older ones.

    ``begun_seconds`` is the Unix time at which a file begins; only of the newest 30 files, null for others.
    """
    require_permission(user, "GET", name)
    stale = Staleness()
    return {**position.binlogs(pipeline_of(name), stale), "stale": stale.to_json()}


@router.get("/pipelines/{name}/backfills")
def backfills(name: str, user: GetUserDep, limit: Limit = 10) -> dict[str, Any]:
    """The last backfills of the pipeline, latest first."""
    require_permission(user, "GET", name)
    require_permission(user, "GET", name, run=True, dag_id=backfill_dag_id(name))
    pipeline_of(name)
    return {"backfills": runs(backfill_dag_id(name), limit)}


@router.get("/pipelines/{name}/snapshots", dependencies=[Depends(slots.look)])
def snapshots(name: str, user: GetUserDep, limit: Limit = 10) -> dict[str, Any]:
    """The last snapshots, latest first: chunks and rows read, rows per second, seconds left; and runs of the snapshot
    DAG."""
    require_permission(user, "GET", name)
    require_permission(user, "GET", name, run=True, dag_id=snapshot_dag_id(name))
    stale = Staleness()
    entries = position.snapshots(pipeline_of(name), stale)[:limit]
    return {"snapshots": entries, "runs": runs(snapshot_dag_id(name), limit), "stale": stale.to_json()}


@router.get("/pipelines/{name}/verifications", dependencies=[Depends(slots.look)])
def verifications(name: str, user: GetUserDep, limit: Limit = 10) -> dict[str, Any]:
    """The last report for the source and for each follower, and the last runs of the verify DAG, latest first.

    ``waiting`` is a run that needs changes which the pipeline will not publish by itself: its ``run_id``, the
    ``wait_seconds`` of its request, and whether somebody has to ``resume`` the pipeline or ``run`` it (``for``).
    """
    require_permission(user, "GET", name)
    require_permission(user, "GET", name, run=True, dag_id=verify_dag_id(name))
    stale, pipeline = Staleness(), pipeline_of(name)
    last = runs(verify_dag_id(name), limit)
    waiting = waiting_verification(last, dag_state(ingest_dag_id(name)), position.position(pipeline, stale))
    reports = position.reports(pipeline, stale)
    return {"reports": reports, "runs": last, "waiting": waiting, "stale": stale.to_json()}


def waiting_verification(
    runs: Sequence[Mapping[str, Any]], ingest: Mapping[str, Any], at: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The verification that waits until somebody resumes or runs the pipeline; None if there is none.

    ``runs`` are those of the verify DAG, ``ingest`` is the state of the ingest DAG, ``at`` the pipeline's position.
    """
    started = next((run for run in runs if run["state"] == "running"), None)
    if started is None or at["state"] != "behind":
        return None
    is_under_way = set(ingest["running"]) > set(ingest["held"])
    if not ingest["paused"] and (is_under_way or ingest["next_run"] is not None):
        return None
    seconds = started["conf"].get("wait_seconds", WAIT_SECONDS)
    return {"run_id": started["run_id"], "wait_seconds": seconds, "for": "resume" if ingest["paused"] else "run"}
