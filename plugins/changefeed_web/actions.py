"""REST: what is done to a pipeline. Each is a run or a switch of Airflow's own."""

from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.exceptions import DagNotFound, ParamValidationError
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from fastapi import APIRouter, Depends, HTTPException
from sqlalchemy import select

from changefeed.airflow.backfill_dag import backfill_dag_id
from changefeed.airflow.connections import server_connections
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.airflow.seek_dag import seek_dag_id
from changefeed.airflow.snapshot_dag import snapshot_dag_id
from changefeed.airflow.verify_dag import verify_dag_id
from changefeed.model.run_identity import snapshot_identity
from changefeed.settings.pipeline_settings import follower_of
from changefeed.settings.requests.backfill import BackfillForm, BackfillRequest
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.seek import SeekRequest
from changefeed.settings.requests.snapshot import SnapshotForm, SnapshotRequest
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.settings.site import site_archive
from changefeed_web import position, slots
from changefeed_web.access import GetUserDep, audited, must
from changefeed_web.dag_state import dag_state
from changefeed_web.pipelines import pipeline_of

router = APIRouter(tags=["actions"])


@router.post("/pipelines/{name}/pause")
def pause(name: str, user: GetUserDep) -> dict[str, Any]:
    """Pause the ingest DAG: no further task begins. A run under way is held when its task has ended."""
    return _switch(name, user, paused=True)


@router.post("/pipelines/{name}/resume")
def resume(name: str, user: GetUserDep) -> dict[str, Any]:
    """Let the ingest DAG's schedule go on."""
    return _switch(name, user, paused=False)


@router.post("/pipelines/{name}/run", status_code=202)
def run(name: str, user: GetUserDep, body: RunBounds | None = None) -> dict[str, Any]:
    """Start a run of the ingest DAG, bounded or not. ``held`` says that the pipeline is paused: it begins when that is
    resumed."""
    must(user, "POST", name, run=True)
    pipeline_of(name)
    dag_id = ingest_dag_id(name)
    started = _triggered(user, "run", name, dag_id, (body or RunBounds()).model_dump(exclude_none=True))
    return {**started, "held": bool(dag_state(dag_id)["paused"])}


@router.post("/pipelines/{name}/seek/plan", dependencies=[Depends(slots.plan)])
def plan_seek(name: str, body: SeekRequest, user: GetUserDep) -> dict[str, Any]:
    """What a seek would skip or repeat. Changes nothing; it is for those who may seek, as it asks the source."""
    from changefeed.operations.seek import plan_seek as planned

    _may_seek(name, user)
    pipeline = pipeline_of(name)
    return planned(server_connections(pipeline), body.to, position.store_of(pipeline)).to_json()


@router.post("/pipelines/{name}/seek", status_code=202, dependencies=[Depends(slots.plan)])
def seek(name: str, body: SeekRequest, user: GetUserDep) -> dict[str, Any]:
    """Start a run of the pipeline's seek DAG, which moves the checkpoint. Refused while a run of the pipeline is under
    way; one that a pause holds does not count."""
    from changefeed.operations.seek import check_reason

    _may_seek(name, user)
    check_reason(body.why)
    plan = plan_seek(name, body, user)
    if body.expected is not None and body.expected != plan["from"]:
        raise HTTPException(409, f"the checkpoint is at {plan['from']} by now, not at {body.expected}: look again")
    dag = dag_state(ingest_dag_id(name))
    under_way = [run_id for run_id in dag["running"] if run_id not in dag["held"]]
    if under_way:
        wait = "its task ends" if dag["paused"] else "it ends, or pause the pipeline and wait until its task ends"
        raise HTTPException(409, f"pipeline {name!r} has run {under_way[0]} under way: wait until {wait}")
    conf = {"to": body.to, "why": body.why, "expected": plan["from"], "finish": body.finish, "apply": True}
    return {**_triggered(user, "seek", name, seek_dag_id(name), conf), "plan": plan}


@router.post("/pipelines/{name}/backfill/plan", dependencies=[Depends(slots.plan)])
def plan_backfill(name: str, body: BackfillForm, user: GetUserDep) -> dict[str, Any]:
    """Files, bytes and tables of a backfill. Changes nothing; it is for those who may start one, as it reads the
    source or an archive."""
    from changefeed.operations.backfill import plan_backfill as planned

    _may_backfill(name, user)
    request = BackfillRequest.of({"pipeline": name, **body.model_dump()})
    pipeline = pipeline_of(name)
    archive_of = site_archive(pipeline.source.connection)
    return planned(server_connections(pipeline), request, archive_of=archive_of).to_json()


@router.post("/pipelines/{name}/backfill", status_code=202)
def backfill(name: str, body: BackfillForm, user: GetUserDep) -> dict[str, Any]:
    """Start a run of the pipeline's backfill DAG."""
    _may_backfill(name, user)
    pipeline = pipeline_of(name)
    if body.archive:
        site_archive(pipeline.source.connection)(body.archive)
    conf = body.model_dump(exclude_none=True)
    return _triggered(user, "backfill", name, backfill_dag_id(name), conf)


@router.post("/pipelines/{name}/snapshot/plan", dependencies=[Depends(slots.plan)])
def plan_snapshot(name: str, body: SnapshotForm, user: GetUserDep) -> dict[str, Any]:
    """Tables and rows of a snapshot. Changes nothing; it is for those who may start one, as it asks the source."""
    from changefeed.snapshot.planning import plan_snapshot as planned

    _may_snapshot(name, user)
    pipeline = pipeline_of(name)
    connections, store = server_connections(pipeline), position.store_of(pipeline)
    request = SnapshotRequest.of({"pipeline": name, **body.model_dump()})
    plan = planned(connections, store, request, snapshot_identity(name, ""), only_look=True).to_json()
    return {what: plan[what] for what in ("request", "tables", "topics")}


@router.post("/pipelines/{name}/snapshot", status_code=202)
def snapshot(name: str, body: SnapshotForm, user: GetUserDep) -> dict[str, Any]:
    """Start a run of the pipeline's snapshot DAG."""
    _may_snapshot(name, user)
    pipeline_of(name)
    conf = body.model_dump(exclude_none=True)
    return _triggered(user, "snapshot", name, snapshot_dag_id(name), conf)


@router.post("/pipelines/{name}/snapshot/pause", dependencies=[Depends(slots.plan)])
def pause_snapshot(name: str, user: GetUserDep) -> dict[str, Any]:
    """Let the pipeline's snapshot wait, behind the chunks that are under way."""
    return _switch_snapshot(name, user, paused=True)


@router.post("/pipelines/{name}/snapshot/resume", dependencies=[Depends(slots.plan)])
def resume_snapshot(name: str, user: GetUserDep) -> dict[str, Any]:
    """Let the pipeline's snapshot go on."""
    return _switch_snapshot(name, user, paused=False)


@router.post("/pipelines/{name}/verify", status_code=202)
def verify(name: str, user: GetUserDep, body: VerifyRequest | None = None) -> dict[str, Any]:
    """Start a run of the pipeline's verify DAG, which compares the topics with the source, or a follower of its
    `followers`, and changes none of them."""
    must(user, "POST", name, run=True, dag_id=verify_dag_id(name))
    asked, pipeline = body or VerifyRequest(), pipeline_of(name)
    if asked.follower:
        follower_of(pipeline.followers, asked.follower)
    return _triggered(user, "verify", name, verify_dag_id(name), asked.model_dump(exclude_none=True))


def _may_seek(name: str, user: Any) -> None:
    must(user, "PUT", name)
    must(user, "POST", name, run=True, dag_id=seek_dag_id(name))


def _may_backfill(name: str, user: Any) -> None:
    must(user, "PUT", name)
    must(user, "POST", name, run=True, dag_id=backfill_dag_id(name))


def _may_snapshot(name: str, user: Any) -> None:
    must(user, "PUT", name)
    must(user, "POST", name, run=True, dag_id=snapshot_dag_id(name))


def _switch(name: str, user: Any, *, paused: bool) -> dict[str, Any]:
    must(user, "PUT", name)
    pipeline_of(name)
    with create_session() as session:
        model = session.scalar(select(DagModel).where(DagModel.dag_id == ingest_dag_id(name)))
        if model is None:
            raise HTTPException(409, f"Airflow does not know DAG {ingest_dag_id(name)} yet: try again in a moment")
        model.is_paused = paused
    audited(user, "pause" if paused else "resume", name)
    return {"name": name, "paused": paused}


def _switch_snapshot(name: str, user: Any, *, paused: bool) -> dict[str, Any]:
    from changefeed.snapshot.pausing import set_paused

    _may_snapshot(name, user)
    identities = set_paused(server_connections(pipeline_of(name)), paused=paused)
    position.forget(name)
    audited(user, "pause_snapshot" if paused else "resume_snapshot", name)
    return {"name": name, "paused": paused, "snapshots": identities}


def _triggered(user: Any, what: str, name: str, dag_id: str, conf: dict[str, Any]) -> dict[str, Any]:
    try:
        started = trigger_dag(
            dag_id=dag_id,
            triggered_by=DagRunTriggeredByType.REST_API,
            triggering_user_name=user.get_name(),
            conf=conf,
        )
    except DagNotFound:
        raise HTTPException(409, f"Airflow does not know DAG {dag_id} yet: try again in a moment") from None
    except (ParamValidationError, ValueError) as error:
        raise HTTPException(422, str(error)) from None
    if started is None:
        raise HTTPException(409, f"Airflow did not start a run of DAG {dag_id}")
    position.forget(name)
    audited(user, what, name, conf=conf)
    return {"dag_id": dag_id, "run_id": started.run_id, "href": f"/dags/{dag_id}/runs/{started.run_id}"}
