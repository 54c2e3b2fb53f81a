"""REST routes that act on a pipeline: each starts or ends a DAG run, or pauses or resumes something."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.core_api.datamodels.dag_run import DagRunMutableStates
from airflow.api_fastapi.core_api.services.public.dag_run import patch_dag_run_state
from airflow.exceptions import DagNotFound, ParamValidationError
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import State
from airflow.utils.types import DagRunTriggeredByType
from fastapi import APIRouter, Depends, HTTPException, Path
from sqlalchemy import select

from changefeed.airflow.backfill_dag import backfill_dag_id
from changefeed.airflow.connections import server_connections
from changefeed.airflow.ingest_dag import ingest_dag_id, max_active_runs
from changefeed.airflow.seek_dag import seek_dag_id
from changefeed.airflow.snapshot_dag import snapshot_dag_id
from changefeed.airflow.unpark_dag import unpark_dag_id
from changefeed.airflow.verify_dag import verify_dag_id
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.run_identity import snapshot_identity
from changefeed.settings.pipeline_settings import find_follower
from changefeed.settings.requests.backfill import BackfillForm, BackfillRequest
from changefeed.settings.requests.discard import DiscardRequest
from changefeed.settings.requests.request import check_reason
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.seek import SeekRequest
from changefeed.settings.requests.snapshot import SnapshotForm, SnapshotRequest
from changefeed.settings.requests.unpark import UnparkRequest
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.settings.site import site_archive
from changefeed_web import position, readings, slots
from changefeed_web.access import GetUserDep, has_permission, require_permission, write_audit_log
from changefeed_web.dag_state import UNFINISHED_STATES, dag_state, known_dags
from changefeed_web.loading import missing_dag
from changefeed_web.pipelines import pipeline_of

router = APIRouter(tags=["actions"])


@router.get("/pipelines/{name}/actions")
def list_actions(name: str, user: GetUserDep) -> dict[str, str | None]:
    """Why ``run``, ``snapshot``, ``backfill``, ``verify`` and ``seek`` cannot be started now; null for each that can.

    An action may still be refused for what it is asked to do.
    """
    require_permission(user, "GET", name)
    pipeline_of(name)
    checks = {
        "run": (_require_run_permission, ingest_dag_id),
        "snapshot": (_require_snapshot_permission, snapshot_dag_id),
        "backfill": (_require_backfill_permission, backfill_dag_id),
        "verify": (_require_verify_permission, verify_dag_id),
        "seek": (_require_seek_possible, seek_dag_id),
    }
    loaded = known_dags(dag_id(name) for _, dag_id in checks.values())
    missing = None if len(loaded) == len(checks) else f"Airflow has not loaded the DAG yet. {_explain_missing(name)}"
    return {
        action: _reason_against(check, name, user) or (None if dag_id(name) in loaded else missing)
        for action, (check, dag_id) in checks.items()
    }


def _reason_against(check: Callable[[str, Any], None], name: str, user: Any) -> str | None:
    try:
        check(name, user)
    except HTTPException as refused:
        return str(refused.detail)
    return None


@router.post("/pipelines/{name}/pause")
def pause(name: str, user: GetUserDep) -> dict[str, Any]:
    """Pause the ingest DAG: no further task starts. A run under way is held after its current task; a continuous run
    ends its task after its window, except with a driver on YARN or Kubernetes."""
    return _set_paused(name, user, paused=True)


@router.post("/pipelines/{name}/resume")
def resume(name: str, user: GetUserDep) -> dict[str, Any]:
    """Resume the ingest DAG: its schedule and its held runs.

    With the setting `windows` and a schedule it also starts a run, ``run_id``, if the next one is not due and the user
    may: the pause has ended the last one. Otherwise, and if the DAG is not paused, ``run_id`` is null.
    """
    starts_run = _pause_ended_run(name, user)  # before Airflow starts a run that is due, after which the next is not
    done = _set_paused(name, user, paused=False)
    started = _trigger_run(user, "run", name, ingest_dag_id(name), {}) if starts_run else {"run_id": None}
    return {**done, "run_id": started["run_id"]}


def _pause_ended_run(name: str, user: Any) -> bool:
    """Whether *Resume* starts a run, as a pause has ended the last one of a continuous pipeline; see `resume`."""
    require_permission(user, "PUT", name)
    dag_id, pipeline = ingest_dag_id(name), pipeline_of(name)
    if pipeline.windows is None or pipeline.schedule is None or not has_permission(user, "POST", dag_id, run=True):
        return False
    dag = dag_state(dag_id)
    is_due = dag["next_run"] is not None and datetime.fromisoformat(dag["next_run"]) <= datetime.now(UTC)
    return bool(dag["paused"]) and not is_due


@router.post("/pipelines/{name}/run", status_code=202)
def run(name: str, user: GetUserDep, body: RunBounds | None = None) -> dict[str, Any]:
    """Start a run of the ingest DAG, with optional bounds.

    If ``held`` is true, the pipeline is paused, and the run starts when it is resumed. If ``queued`` is true, the run
    starts when the run under way has ended. A run of a pipeline with the setting `windows` takes over from it instead;
    with ``max_seconds`` it publishes beside it.
    """
    _require_run_permission(name, user)
    pipeline = pipeline_of(name)
    dag_id = ingest_dag_id(name)
    started = _trigger_run(user, "run", name, dag_id, (body or RunBounds()).model_dump(exclude_none=True))
    dag = dag_state(dag_id)
    others = [run_id for run_id in dag["running"] if run_id not in (*dag["held"], started["run_id"])]
    return {**started, "held": bool(dag["paused"]), "queued": len(others) >= max_active_runs(pipeline)}


RunId = Annotated[str, Path(description="Id of a run of the ingest DAG.")]


@router.post("/pipelines/{name}/runs/{run_id}/cancel")
def cancel(name: str, run_id: RunId, user: GetUserDep) -> dict[str, Any]:
    """End a run of the ingest DAG that is under way or held, as *mark failed* of Airflow does.

    Its job ends within seconds. Windows that it has sealed stay published, and the next run publishes the rest.
    Answers 409 if the run or all its tasks have already ended.
    """
    require_permission(user, "PUT", name, run=True)  # as for mark failed in Airflow
    pipeline_of(name)
    _mark_failed(ingest_dag_id(name), run_id)
    readings.expire(name)
    write_audit_log(user, "cancel", name, run_id=run_id)
    return {"name": name, "run_id": run_id, "state": "failed"}


@router.post("/pipelines/{name}/seek/plan", dependencies=[Depends(slots.plan)])
def plan_seek(name: str, body: SeekRequest, user: GetUserDep) -> dict[str, Any]:
    """Show what a seek would skip or repeat, with the unfinished windows finished first (``finish``) or given up.

    Changes nothing, but requires the permission to seek, as it queries the source.
    """
    from changefeed.operations.seek import plan_seek as make_plan

    _require_seek_permission(name, user)
    pipeline = pipeline_of(name)
    store = position.store_of(pipeline)
    return make_plan(server_connections(pipeline), body.to, store, finish=body.finish).to_json()


@router.post("/pipelines/{name}/seek", status_code=202, dependencies=[Depends(slots.plan)])
def seek(name: str, body: SeekRequest, user: GetUserDep) -> dict[str, Any]:
    """Start a run of the pipeline's seek DAG, which moves the checkpoint.

    Refused (409) while a run of the pipeline is under way, except a continuous one; a run that a pause holds is
    allowed.
    """
    _require_seek_permission(name, user)
    check_reason(body.why, "a seek")
    plan = plan_seek(name, body, user)
    target: dict[str, Any] = {"to": body.to, "expected": plan["from"]}
    if pipeline_of(name).windows is not None:  # a continuous run moves the checkpoint meanwhile
        _require_shown_effect(body, plan)
        target = {"to": plan["to"], "expected": None}
    elif body.expected is not None and body.expected != plan["from"]:
        raise HTTPException(
            409, f"expected the checkpoint at {body.expected}, found {plan['from']}. Nothing was changed; look again"
        )
    _require_no_run(name)
    conf = {**target, "why": body.why, "finish": body.finish, "apply": True}
    return {**_trigger_run(user, "seek", name, seek_dag_id(name), conf), "plan": plan}


@router.post("/pipelines/{name}/backfill/plan", dependencies=[Depends(slots.plan)])
def plan_backfill(name: str, body: BackfillForm, user: GetUserDep) -> dict[str, Any]:
    """Show the files, bytes and tables of a backfill.

    Changes nothing, but requires the permission to start one, as it reads the source or an archive.
    """
    from changefeed.operations.backfill import plan_backfill as make_plan

    _require_backfill_permission(name, user)
    request = BackfillRequest.of({"pipeline": name, **body.model_dump()})
    pipeline = pipeline_of(name)
    archive_of = site_archive(pipeline.source.connection)
    return make_plan(server_connections(pipeline), request, archive_of=archive_of).to_json()


@router.post("/pipelines/{name}/backfill", status_code=202)
def backfill(name: str, body: BackfillForm, user: GetUserDep) -> dict[str, Any]:
    """Start a run of the pipeline's backfill DAG."""
    _require_backfill_permission(name, user)
    pipeline = pipeline_of(name)
    if body.archive:
        site_archive(pipeline.source.connection)(body.archive)
    conf = body.model_dump(exclude_none=True)
    return _trigger_run(user, "backfill", name, backfill_dag_id(name), conf)


@router.post("/pipelines/{name}/dead-letters/discard/plan", dependencies=[Depends(slots.plan)])
def plan_discard(name: str, body: DiscardRequest, user: GetUserDep) -> dict[str, Any]:
    """Show which dead letters a discard deletes: how many of which tables, and their times.

    Kafka deletes only the oldest records of a partition, so all dead letters before an offset of ``up_to`` are deleted
    with it. Changes nothing, but requires the permission to edit the pipeline, as it reads the dead letters.
    """
    from changefeed.operations.discard import plan_discard as make_plan

    require_permission(user, "PUT", name)
    return make_plan(server_connections(pipeline_of(name)), body.up_to).to_json()


@router.post("/pipelines/{name}/dead-letters/discard", dependencies=[Depends(slots.plan)])
def discard(name: str, body: DiscardRequest, user: GetUserDep) -> dict[str, Any]:
    """Delete dead letters from the pipeline's dead-letter topic, up to an offset of each partition. This cannot be
    undone.

    Refused if records before these offsets are not dead letters of the pipeline. The record of the discard, with its
    reason, is in the pipeline's commit log.
    """
    from changefeed.operations.discard import discard as delete
    from changefeed.operations.discard import plan_discard as make_plan

    require_permission(user, "PUT", name)
    connections = server_connections(pipeline_of(name))
    check_reason(body.why, "a discard")
    if not body.up_to:
        raise HTTPException(422, "expected an offset by partition in up_to, found none. Nothing was deleted")
    planned = make_plan(connections, body.up_to)
    write_audit_log(user, "discard_dead_letters", name, up_to=dict(planned.up_to), letters=planned.letters)
    try:
        record = delete(connections, planned, who=user.get_name(), why=body.why)
    finally:
        readings.expire(name)
    answer: dict[str, Any] = record.to_json()
    return answer


@router.post("/pipelines/{name}/snapshot/plan", dependencies=[Depends(slots.plan)])
def plan_snapshot(name: str, body: SnapshotForm, user: GetUserDep) -> dict[str, Any]:
    """Show the tables and estimated rows of a snapshot.

    Changes nothing, but requires the permission to start one, as it queries the source.
    """
    from changefeed.snapshot.planning import plan_snapshot as make_plan

    _require_snapshot_permission(name, user)
    pipeline = pipeline_of(name)
    connections, store = server_connections(pipeline), position.store_of(pipeline)
    request = SnapshotRequest.of({"pipeline": name, **body.model_dump()})
    plan = make_plan(connections, store, request, snapshot_identity(name, ""), dry_run=True).to_json()
    return {what: plan[what] for what in ("request", "tables", "topics")}


@router.post("/pipelines/{name}/snapshot", status_code=202)
def snapshot(name: str, body: SnapshotForm, user: GetUserDep) -> dict[str, Any]:
    """Start a run of the pipeline's snapshot DAG."""
    _require_snapshot_permission(name, user)
    pipeline_of(name)
    conf = body.model_dump(exclude_none=True)
    return _trigger_run(user, "snapshot", name, snapshot_dag_id(name), conf)


@router.post("/pipelines/{name}/snapshot/pause", dependencies=[Depends(slots.plan)])
def pause_snapshot(name: str, user: GetUserDep) -> dict[str, Any]:
    """Pause the pipeline's snapshot after the chunks that are being read."""
    return _set_snapshot_paused(name, user, paused=True)


@router.post("/pipelines/{name}/snapshot/resume", dependencies=[Depends(slots.plan)])
def resume_snapshot(name: str, user: GetUserDep) -> dict[str, Any]:
    """Resume the pipeline's snapshot."""
    return _set_snapshot_paused(name, user, paused=False)


@router.post("/pipelines/{name}/verify", status_code=202)
def verify(name: str, user: GetUserDep, body: VerifyRequest | None = None) -> dict[str, Any]:
    """Start a run of the pipeline's verify DAG, which compares the topics with the source or with one of the pipeline's
    `followers`. It changes none of them."""
    _require_verify_permission(name, user)
    request, pipeline = body or VerifyRequest(), pipeline_of(name)
    if request.follower:
        find_follower(pipeline.followers, request.follower)
    return _trigger_run(user, "verify", name, verify_dag_id(name), request.model_dump(exclude_none=True))


@router.post("/pipelines/{name}/unpark", status_code=202)
def unpark(name: str, user: GetUserDep, body: UnparkRequest | None = None) -> dict[str, Any]:
    """Start a run of the pipeline's unpark DAG, which publishes what parked tables miss and ends their parking.

    Answers 409 for a pipeline without `on_table_error: park`, which has no such DAG."""
    require_permission(user, "PUT", name)
    require_permission(user, "POST", name, run=True, dag_id=unpark_dag_id(name))
    if pipeline_of(name).on_table_error != "park":
        raise HTTPException(409, f"pipeline {name!r} has no parked tables: it does not have `on_table_error: park`")
    conf = (body or UnparkRequest()).model_dump(exclude_none=True)
    return _trigger_run(user, "unpark", name, unpark_dag_id(name), conf)


def _require_run_permission(name: str, user: Any) -> None:
    require_permission(user, "POST", name, run=True)


def _require_seek_permission(name: str, user: Any) -> None:
    require_permission(user, "PUT", name)
    require_permission(user, "POST", name, run=True, dag_id=seek_dag_id(name))


def _require_seek_possible(name: str, user: Any) -> None:
    _require_seek_permission(name, user)
    _require_no_run(name)


def _require_shown_effect(body: SeekRequest, plan: dict[str, Any]) -> None:
    """Answer 409 if a seek forward would repeat changes now, because the continuous run has published past its
    target."""
    at, to = (BinlogCoordinates.parse(text) for text in (body.expected or plan["to"], plan["to"]))
    if body.expected and at.base == to.base and at <= to and plan["repeated_bytes"]:
        raise HTTPException(
            409, f"the continuous run has published past {to}, which would be repeated. Nothing was changed; look again"
        )


def _require_no_run(name: str) -> None:
    """Answer 409 to a seek while a run of the pipeline is under way; one that a pause holds is allowed, and a
    continuous one, as a seek goes between two of its windows."""
    if pipeline_of(name).windows is not None:
        return
    dag = dag_state(ingest_dag_id(name))
    under_way = [run_id for run_id in dag["running"] if run_id not in dag["held"]]
    if under_way:
        wait = "its task ends" if dag["paused"] else "the run ends, or pause the pipeline and wait until its task ends"
        raise HTTPException(
            409, f"pipeline {name!r} has run {under_way[0]} under way. Nothing was changed; wait until {wait}"
        )


def _require_verify_permission(name: str, user: Any) -> None:
    require_permission(user, "POST", name, run=True, dag_id=verify_dag_id(name))


def _require_backfill_permission(name: str, user: Any) -> None:
    require_permission(user, "PUT", name)
    require_permission(user, "POST", name, run=True, dag_id=backfill_dag_id(name))


def _require_snapshot_permission(name: str, user: Any) -> None:
    require_permission(user, "PUT", name)
    require_permission(user, "POST", name, run=True, dag_id=snapshot_dag_id(name))


def _set_paused(name: str, user: Any, *, paused: bool) -> dict[str, Any]:
    require_permission(user, "PUT", name)
    pipeline_of(name)
    with create_session() as session:
        model = session.scalar(select(DagModel).where(DagModel.dag_id == ingest_dag_id(name)))
        if model is None:
            raise _not_loaded(name, ingest_dag_id(name))
        model.is_paused = paused
    write_audit_log(user, "pause" if paused else "resume", name)
    return {"name": name, "paused": paused}


def _mark_failed(dag_id: str, run_id: str) -> None:
    """Do what Airflow does on *mark failed*.

    Answers 404 if there is no such run, and 409 if it has ended, or all its tasks: Airflow ends the run soon after.
    """
    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id).with_for_update())
        if run is None:
            raise HTTPException(404, f"expected a run of DAG {dag_id}, found none with the id {run_id!r}")
        if run.state not in UNFINISHED_STATES:
            raise HTTPException(
                409, f"expected an unfinished run, found {run_id} in state {run.state}. Nothing was changed"
            )
        states = session.scalars(
            select(TaskInstance.state).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        ).all()
        if states and all(state in State.finished for state in states):
            raise HTTPException(
                409, f"expected an unfinished task in run {run_id}, found that all have ended. Nothing was changed"
            )
        dag = DBDagBag().get_dag_for_run(run, session)
        if dag is None:
            raise HTTPException(
                409, f"Airflow no longer has DAG {dag_id} as of run {run_id}. Nothing was changed. Delete the run there"
            )
        patch_dag_run_state(dag=dag, dag_run=run, state=DagRunMutableStates.FAILED, session=session)


def _set_snapshot_paused(name: str, user: Any, *, paused: bool) -> dict[str, Any]:
    from changefeed.snapshot.pausing import set_paused

    _require_snapshot_permission(name, user)
    identities = set_paused(server_connections(pipeline_of(name)), paused=paused)
    readings.expire(name)
    write_audit_log(user, "pause_snapshot" if paused else "resume_snapshot", name)
    return {"name": name, "paused": paused, "snapshots": identities}


def _not_loaded(name: str, dag_id: str) -> HTTPException:
    return HTTPException(409, f"Airflow has not loaded DAG {dag_id} yet. Nothing was done. {_explain_missing(name)}")


def _explain_missing(name: str) -> str:
    """Why Airflow does not know a DAG of the pipeline, and what to do."""
    missing = missing_dag(name, dag_state(ingest_dag_id(name)))
    return str(missing["text"]) if missing else "Try again in a minute."


def _trigger_run(user: Any, what: str, name: str, dag_id: str, conf: dict[str, Any]) -> dict[str, Any]:
    try:
        started = trigger_dag(
            dag_id=dag_id,
            triggered_by=DagRunTriggeredByType.REST_API,
            triggering_user_name=user.get_name(),
            conf=conf,
        )
    except DagNotFound:
        raise _not_loaded(name, dag_id) from None
    except (ParamValidationError, ValueError) as error:
        raise HTTPException(422, str(error)) from None
    if started is None:
        raise HTTPException(409, f"Airflow did not start a run of DAG {dag_id}")
    readings.expire(name)
    write_audit_log(user, what, name, conf=conf)
    return {"dag_id": dag_id, "run_id": started.run_id, "href": f"/dags/{dag_id}/runs/{started.run_id}"}
