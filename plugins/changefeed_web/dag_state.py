"""State of a pipeline's DAG in Airflow: its last runs, and the error of the last failed run."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.log.log_reader import TaskLogReader
from airflow.utils.session import create_session
from sqlalchemy import func, or_, select
from sqlalchemy.orm import selectinload

from changefeed.airflow.ingest_dag import ACTIVE_STATES, INGEST_TASK


def dag_state(dag_id: str) -> dict[str, Any]:
    """The state of a DAG. ``known`` is False until the DAG processor has parsed its file, which it last did at
    ``last_parsed``.

    ``running`` are the ids of unfinished runs. ``held`` are the ids of the unfinished runs that wait until the DAG is
    resumed: the DAG is paused, and none of their tasks is active.
    """
    with create_session() as session:
        model = session.scalar(select(DagModel).where(DagModel.dag_id == dag_id))
        last = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc()).limit(1))
        running = list(
            session.scalars(
                select(DagRun.run_id).where(DagRun.dag_id == dag_id, DagRun.state.in_(("running", "queued")))
            )
        )
        at_work = set(
            session.scalars(
                select(TaskInstance.run_id).where(
                    TaskInstance.dag_id == dag_id,
                    TaskInstance.run_id.in_(running),
                    TaskInstance.state.in_(ACTIVE_STATES),
                )
            )
        )
        paused = bool(model.is_paused) if model else None
        return {
            "dag_id": dag_id,
            "known": model is not None and not model.is_stale,
            "last_parsed": _iso(model.last_parsed_time) if model else None,
            "paused": paused,
            "schedule": model.timetable_summary if model else None,
            "next_run": _iso(model.next_dagrun_create_after) if model else None,
            "running": running,
            "held": [run_id for run_id in running if run_id not in at_work] if paused else [],
            "last_run": _run(last) if last else None,
        }


def runs(dag_id: str, limit: int) -> list[dict[str, Any]]:
    """The last runs of a DAG, latest first, with their conf, without those that found nothing to do."""
    idle = select(TaskInstance.run_id).where(
        TaskInstance.dag_id == dag_id, TaskInstance.task_id == "plan", TaskInstance.state == "skipped"
    )
    with create_session() as session:
        latest = session.scalars(
            select(DagRun)
            .where(DagRun.dag_id == dag_id, DagRun.run_id.not_in(idle))
            .order_by(DagRun.run_after.desc())
            .limit(limit)
        )
        return [{**_run(run), "href": f"/dags/{dag_id}/runs/{run.run_id}", "conf": run.conf or {}} for run in latest]


def outcomes(dag_id: str, run_ids: Sequence[str]) -> dict[str, str]:
    """By run, a sentence on how far its tasks are, or how they ended."""
    with create_session() as session:
        tasks = session.execute(
            select(TaskInstance.run_id, TaskInstance.task_id, TaskInstance.state, TaskInstance.try_number)
            .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id.in_(run_ids))
            .order_by(TaskInstance.start_date)
        ).all()
    return {
        run_id: _outcome({task: (str(state), attempt) for of, task, state, attempt in tasks if of == run_id})
        for run_id in run_ids
    }


def _outcome(tasks: dict[str, tuple[str, int]]) -> str:
    for task, (state, attempt) in tasks.items():
        if state in ("failed", "up_for_retry", *ACTIVE_STATES):
            which = f", attempt {attempt}" if attempt > 1 else ""
            words = {"failed": "failed in", "up_for_retry": "waits for a retry of"}
            return f"{words.get(state, 'is at')} task {task}{which}"
    ingest, _ = tasks.get(INGEST_TASK, ("None", 0))
    return {"success": "published", "skipped": "nothing new"}.get(ingest, "not started")


def runs_at(dag_id: str, moments_ms: Sequence[int]) -> list[dict[str, Any] | None]:
    """For each moment (Unix milliseconds), the run of the DAG that was under way; None if there was none."""
    if not moments_ms:
        return []
    moments = [datetime.fromtimestamp(moment / 1000, UTC) for moment in moments_ms]
    with create_session() as session:
        runs = session.execute(
            select(DagRun.run_id, DagRun.state, DagRun.start_date, DagRun.end_date)
            .where(DagRun.dag_id == dag_id, DagRun.start_date <= max(moments))
            .where(or_(DagRun.end_date.is_(None), DagRun.end_date >= min(moments)))
            .order_by(DagRun.start_date.desc())
        ).all()

    def run_at(moment: datetime) -> dict[str, Any] | None:
        for run_id, state, start, end in runs:
            if start <= moment and (end is None or moment <= end):
                return {"run_id": run_id, "state": str(state), "href": f"/dags/{dag_id}/runs/{run_id}"}
        return None

    return [run_at(moment) for moment in moments]


def count_retries(dag_id: str, run_id: str) -> int:
    """Number of retries of all tasks of a run."""
    with create_session() as session:
        tries = session.scalars(
            select(TaskInstance.try_number).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        )
        return sum(max(0, number - 1) for number in tries)


def last_push(dag_id: str, key: str) -> float | None:
    """When a task of the DAG last pushed an XCom with this key, in Unix seconds; None if none has."""
    with create_session() as session:
        pushed = session.scalar(
            select(func.max(XComModel.timestamp)).where(XComModel.dag_id == dag_id, XComModel.key == key)
        )
    return pushed.timestamp() if pushed else None


def last_error(dag_id: str, run_id: str, *, logs: bool) -> dict[str, Any] | None:
    """The first failed task of a run and, if ``logs``, the errors in the log of its last attempt that ended.

    ``attempt`` is the number of that attempt, of ``attempts``; ``retried`` says that another follows or is under way.
    None if no attempt failed.
    """
    tried = or_(TaskInstance.state.is_(None), TaskInstance.state != "success") & (TaskInstance.try_number > 1)
    with create_session() as session:
        failed = session.scalar(
            select(TaskInstance)
            .options(selectinload(TaskInstance.dag_run))
            .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
            .where(or_(TaskInstance.state.in_(("failed", "up_for_retry")), tried))
            .order_by(TaskInstance.end_date)
            .limit(1)
        )
        if failed is None:
            return None
        has_ended = failed.state in ("failed", "up_for_retry")
        attempt = failed.try_number if has_ended else failed.try_number - 1
        where = f"/dags/{dag_id}/runs/{run_id}/tasks/{failed.task_id}"
        text = (
            _errors_in_log(failed, attempt)
            if logs
            else f"to see the error, you need Airflow's permission for task logs of {dag_id}"
        )
        attempts = {"attempt": attempt, "attempts": failed.max_tries + 1, "retried": failed.state != "failed"}
        return {"run_id": run_id, "task_id": failed.task_id, "text": text, "href": where, **attempts}


def _errors_in_log(instance: Any, attempt: int) -> str:
    try:
        lines, _ = TaskLogReader().read_log_chunks(instance, attempt, {"end_of_log": False})
        texts = []
        for line in lines:
            event = str(getattr(line, "event", ""))
            values = line.model_dump()
            if event.startswith("ERROR ") or values.get("level") in ("error", "critical"):
                details = [detail.get("exc_value", "") for detail in values.get("error_detail") or ()]
                texts += [text for text in (event.removeprefix("ERROR "), *details) if text]
    except Exception as error:  # an unreadable log must not make the pipeline's state unavailable
        return f"the task's log cannot be read: {error}"
    useful = [text for text in texts if text != "Task failed with exception"]
    return (
        "\n".join(dict.fromkeys(useful))
        or "the task failed without an error in its log: it was killed, or did not start"
    )


def _run(run: Any) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "state": str(run.state),
        "run_after": _iso(run.run_after),
        "start": _iso(run.start_date),
        "end": _iso(run.end_date),
    }


def _iso(moment: Any) -> str | None:
    return moment.isoformat() if moment else None
