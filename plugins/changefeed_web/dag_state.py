"""What Airflow knows of a pipeline: its DAG, its last runs, and why the last one failed."""

from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.log.log_reader import TaskLogReader
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import selectinload


def dag_state(dag_id: str) -> dict[str, Any]:
    """``known`` is False until the DAG processor has seen the file."""
    with create_session() as session:
        model = session.scalar(select(DagModel).where(DagModel.dag_id == dag_id))
        last = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc()).limit(1))
        running = list(
            session.scalars(
                select(DagRun.run_id).where(DagRun.dag_id == dag_id, DagRun.state.in_(("running", "queued")))
            )
        )
        return {
            "dag_id": dag_id,
            "known": model is not None and not model.is_stale,
            "paused": bool(model.is_paused) if model else None,
            "schedule": model.timetable_summary if model else None,
            "next_run": _iso(model.next_dagrun_create_after) if model else None,
            "running": running,
            "last_run": _run(last) if last else None,
        }


def runs(dag_id: str, limit: int) -> list[dict[str, Any]]:
    """The last runs of a DAG, latest first, with what they were given."""
    with create_session() as session:
        latest = session.scalars(
            select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc()).limit(limit)
        )
        return [{**_run(run), "conf": run.conf or {}} for run in latest]


def retries(dag_id: str, run_id: str) -> int:
    """How often tasks of a run were tried again."""
    with create_session() as session:
        tries = session.scalars(
            select(TaskInstance.try_number).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        )
        return sum(max(0, number - 1) for number in tries)


def last_error(dag_id: str, run_id: str) -> dict[str, Any] | None:
    """The failed task of a run and the errors in its log, in full; None where no task failed."""
    with create_session() as session:
        failed = session.scalar(
            select(TaskInstance)
            .options(selectinload(TaskInstance.dag_run))
            .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.state == "failed")
            .order_by(TaskInstance.end_date)
            .limit(1)
        )
        if failed is None:
            return None
        where = f"/dags/{dag_id}/runs/{run_id}/tasks/{failed.task_id}"
        return {"run_id": run_id, "task_id": failed.task_id, "text": _errors_in_log(failed), "href": where}


def _errors_in_log(instance: Any) -> str:
    try:
        lines, _ = TaskLogReader().read_log_chunks(instance, instance.try_number, {"end_of_log": False})
        texts = []
        for line in lines:
            event = str(getattr(line, "event", ""))
            values = line.model_dump()
            if event.startswith("ERROR ") or values.get("level") in ("error", "critical"):
                details = [detail.get("exc_value", "") for detail in values.get("error_detail") or ()]
                texts += [text for text in (event.removeprefix("ERROR "), *details) if text]
    except Exception as error:  # a log that cannot be read must not hide the pipeline
        return f"the task's log cannot be read here: {error}"
    useful = [text for text in texts if text != "Task failed with exception"]
    return "\n".join(dict.fromkeys(useful)) or "the task failed and its log has no error: it was killed, or never began"


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
