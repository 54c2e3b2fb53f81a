"""REST: windows, seeks, commit log, tables, schemas, backfills and snapshots of a pipeline."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from changefeed.airflow.backfill_dag import backfill_dag_id
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.airflow.snapshot_dag import snapshot_dag_id
from changefeed.airflow.verify_dag import verify_dag_id
from changefeed_web import position, slots
from changefeed_web.access import GetUserDep, must
from changefeed_web.dag_state import runs, runs_at
from changefeed_web.pipelines import pipeline_of

router = APIRouter(tags=["history"])

Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("/pipelines/{name}/windows", dependencies=[Depends(slots.look)])
def windows(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """Manifests of the last windows, latest first: range, rows, bytes, offsets, seconds by phase.

    ``run`` is the run of the ingest DAG that froze the window, null where Airflow has none of that time.
    """
    must(user, "GET", name)
    manifests = position.manifests(pipeline_of(name), limit)
    froze = runs_at(ingest_dag_id(name), [manifest["window"]["frozen_at_ms"] for manifest in manifests])
    return {"windows": [{**manifest, "run": run} for manifest, run in zip(manifests, froze, strict=True)]}


@router.get("/pipelines/{name}/seeks", dependencies=[Depends(slots.look)])
def seeks(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """The record of seeks, latest first: who, when, from where, to where, why."""
    must(user, "GET", name)
    records = position.commit_log(pipeline_of(name)).seeks
    return {"seeks": [records[number].to_json() for number in sorted(records, reverse=True)[:limit]]}


@router.get("/pipelines/{name}/commit-log", dependencies=[Depends(slots.look)])
def commit_log(name: str, user: GetUserDep) -> dict[str, Any]:
    """The last message that each topic-partition was given."""
    must(user, "GET", name)
    by_partition = position.commit_log(pipeline_of(name)).progress
    return {
        "progress": [
            {"topic": topic, "partition": partition, **progress.to_json()}
            for (topic, partition), progress in sorted(by_partition.items())
        ]
    }


@router.get("/pipelines/{name}/tables", dependencies=[Depends(slots.look)])
def tables(name: str, user: GetUserDep) -> dict[str, Any]:
    """What becomes of each table that is captured now: topic, partitions, key columns, format, columns left out and
    masked, whether rows are left out by a condition, the functions that its changes go through, and a message of it.

    The message is of a row that is made up by the columns' types, with the masks but without their secrets; null for
    an outbox. What is binary is shown as JSON.
    """
    must(user, "GET", name)
    return {"tables": position.tables(pipeline_of(name))}


@router.get("/pipelines/{name}/schema", dependencies=[Depends(slots.look)])
def schema(name: str, user: GetUserDep, limit: Limit = 30) -> dict[str, Any]:
    """The captured tables as the schema history has them, and the last definitions that changed them, latest first.

    ``until`` is the coordinates up to which it is known; null before the first window.
    """
    must(user, "GET", name)
    return position.schemas(pipeline_of(name), limit)


@router.get("/pipelines/{name}/backfills")
def backfills(name: str, user: GetUserDep, limit: Limit = 10) -> dict[str, Any]:
    """The last backfills of the pipeline, latest first."""
    must(user, "GET", name)
    must(user, "GET", name, run=True, dag_id=backfill_dag_id(name))
    pipeline_of(name)
    return {"backfills": runs(backfill_dag_id(name), limit)}


@router.get("/pipelines/{name}/snapshots", dependencies=[Depends(slots.look)])
def snapshots(name: str, user: GetUserDep, limit: Limit = 10) -> dict[str, Any]:
    """The last snapshots, latest first: chunks and rows done, rows a second, seconds left; and the runs of the DAG."""
    must(user, "GET", name)
    must(user, "GET", name, run=True, dag_id=snapshot_dag_id(name))
    found = position.snapshots(pipeline_of(name))[:limit]
    return {"snapshots": found, "runs": runs(snapshot_dag_id(name), limit)}


@router.get("/pipelines/{name}/verifications", dependencies=[Depends(slots.look)])
def verifications(name: str, user: GetUserDep, limit: Limit = 10) -> dict[str, Any]:
    """The reports of the last comparison with the source and with each follower, and the last runs of the verify DAG,
    latest first."""
    must(user, "GET", name)
    must(user, "GET", name, run=True, dag_id=verify_dag_id(name))
    return {"reports": position.reports(pipeline_of(name)), "runs": runs(verify_dag_id(name), limit)}
