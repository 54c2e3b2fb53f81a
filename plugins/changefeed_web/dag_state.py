"""State of a pipeline's DAG in Airflow: its last runs, and the error of the last failed run."""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.models.xcom import XCOM_RETURN_KEY, XComModel
from airflow.utils.log.log_reader import TaskLogReader
from airflow.utils.session import create_session
from sqlalchemy import func, or_, select
from sqlalchemy.orm import selectinload

from changefeed.airflow.ingest_dag import ACTIVE_STATES, INGEST_TASK, PLAN_TASK

UNFINISHED_STATES = ("running", "queued")
"""States of runs that have not ended."""


def dag_state(dag_id: str) -> dict[str, Any]:
    """The state of a DAG. ``known`` is False until the DAG processor has parsed its file, which it last did at
    ``last_parsed``.

    ``running`` are the ids of unfinished runs. ``held`` are the ids of the unfinished runs that wait until the DAG is
    resumed: the DAG is paused, and none of their tasks is active.
    """
    return dag_states([dag_id])[dag_id]


def dag_states(dag_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """As `dag_state`, for several DAGs, by id. The number of queries does not depend on the number of DAGs."""
    with create_session() as session:
        models = {
            model.dag_id: model for model in session.scalars(select(DagModel).where(DagModel.dag_id.in_(dag_ids)))
        }
        last = _last_runs(session, dag_ids)
        running = _unfinished_runs(session, dag_ids)
        at_work = _runs_at_work(session, running)
        return {
            dag_id: _state(dag_id, models.get(dag_id), last.get(dag_id), running.get(dag_id, []), at_work)
            for dag_id in dag_ids
        }


def known_dags(dag_ids: Iterable[str]) -> set[str]:
    """Those of ``dag_ids`` that Airflow has loaded."""
    with create_session() as session:
        loaded = select(DagModel.dag_id).where(DagModel.dag_id.in_(list(dag_ids)), DagModel.is_stale.is_(False))
        return set(session.scalars(loaded))


def _last_runs(session: Any, dag_ids: Collection[str]) -> dict[str, DagRun]:
    latest = (
        select(DagRun.dag_id, func.max(DagRun.run_after).label("run_after"))
        .where(DagRun.dag_id.in_(dag_ids))
        .group_by(DagRun.dag_id)
        .subquery()
    )
    is_latest = (DagRun.dag_id == latest.c.dag_id) & (DagRun.run_after == latest.c.run_after)
    runs = session.scalars(select(DagRun).join(latest, is_latest).order_by(DagRun.id.desc()))
    return {run.dag_id: run for run in runs}  # of runs that are due at the same time, the first


def _unfinished_runs(session: Any, dag_ids: Collection[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    unfinished = select(DagRun.dag_id, DagRun.run_id).where(
        DagRun.dag_id.in_(dag_ids), DagRun.state.in_(UNFINISHED_STATES)
    )
    for dag_id, run_id in session.execute(unfinished.order_by(DagRun.id)):
        found.setdefault(dag_id, []).append(run_id)
    return found


def _runs_at_work(session: Any, running: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """DAG and run of the tasks that are active."""
    if not running:
        return set()
    of_runs = (
        TaskInstance.dag_id.in_(running),
        TaskInstance.run_id.in_({run for runs in running.values() for run in runs}),
    )
    active = select(TaskInstance.dag_id, TaskInstance.run_id).where(*of_runs, TaskInstance.state.in_(ACTIVE_STATES))
    return {(dag_id, run_id) for dag_id, run_id in session.execute(active)}


def _state(
    dag_id: str, model: Any, last: DagRun | None, running: list[str], at_work: set[tuple[str, str]]
) -> dict[str, Any]:
    paused = bool(model.is_paused) if model else None
    return {
        "dag_id": dag_id,
        "known": model is not None and not model.is_stale,
        "last_parsed": _iso(model.last_parsed_time) if model else None,
        "paused": paused,
        "next_run": _iso(model.next_dagrun_create_after) if model else None,
        "running": running,
        "held": [run_id for run_id in running if (dag_id, run_id) not in at_work] if paused else [],
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
            .where(DagRun.dag_id == dag_id, or_(DagRun.state != "success", DagRun.run_id.not_in(idle)))
            .order_by(DagRun.run_after.desc())
            .limit(limit)
        )
        return [{**_run(run), "href": f"/dags/{dag_id}/runs/{run.run_id}", "conf": run.conf or {}} for run in latest]


def failed_runs(dag_id: str, limit: int) -> list[dict[str, Any]]:
    """The last failed runs of a DAG, latest first, with ``end_ms`` in Unix milliseconds."""
    with create_session() as session:
        failed = session.scalars(
            select(DagRun)
            .where(DagRun.dag_id == dag_id, DagRun.state == "failed")
            .order_by(DagRun.run_after.desc())
            .limit(limit)
        )
        return [{**_run(run), "end_ms": int(run.end_date.timestamp() * 1000)} for run in failed if run.end_date]


def outcomes(dag_id: str, run_ids: Sequence[str]) -> dict[str, str]:
    """By run, a sentence on how far its tasks are, or how they ended."""
    with create_session() as session:
        tasks = session.execute(
            select(TaskInstance.run_id, TaskInstance.task_id, TaskInstance.state, TaskInstance.try_number)
            .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id.in_(run_ids))
            .order_by(TaskInstance.start_date)
        ).all()
        are_of_runs = (DagRun.dag_id == dag_id, DagRun.run_id.in_(run_ids), DagRun.state == "failed")
        failed = set(session.scalars(select(DagRun.run_id).where(*are_of_runs)))
        results = _results(session, dag_id, run_ids, INGEST_TASK)

    def outcome(run_id: str) -> str:
        own = {task: (str(state), attempt) for of, task, state, attempt in tasks if of == run_id}
        return _outcome(own, results.get(run_id), has_failed=run_id in failed)

    return {run_id: outcome(run_id) for run_id in run_ids}


def planned_windows(dag_id: str, run_ids: Sequence[str]) -> dict[str, list[int]]:
    """By run of the ingest DAG, the numbers of the windows that its task `plan` froze; runs without are left out."""
    with create_session() as session:
        plans = _results(session, dag_id, run_ids, PLAN_TASK)
    return {
        run_id: [int(window["number"]) for window in plan["windows"]]
        for run_id, plan in plans.items()
        if isinstance(plan, dict) and "windows" in plan
    }


def _results(session: Any, dag_id: str, run_ids: Sequence[str], task_id: str) -> dict[str, Any]:
    """By run, what a task of it returned."""
    results = session.scalars(
        select(XComModel).where(
            XComModel.dag_id == dag_id,
            XComModel.run_id.in_(run_ids),
            XComModel.task_id == task_id,
            XComModel.key == XCOM_RETURN_KEY,
        )
    )
    return {result.run_id: XComModel.deserialize_value(result) for result in results}


def _outcome(tasks: dict[str, tuple[str, int]], published: Any, *, has_failed: bool) -> str:
    """``published`` is what the task `ingest` of a continuous run returned, otherwise None."""
    for task, (state, attempt) in tasks.items():
        if state in ("failed", "up_for_retry", *ACTIVE_STATES):
            which = f", attempt {attempt}" if attempt > 1 else ""
            words = {"failed": "failed in", "up_for_retry": "waits for a retry of"}
            return f"{words.get(state, 'is at')} task {task}{which}"
    if has_failed:  # and no task: the run was ended while it was held, or before its first task
        return "cancelled"
    ingest, _ = tasks.get(INGEST_TASK, ("None", 0))
    if ingest == "success" and published == {"rows": {}, "records": {}}:
        return "nothing new"
    return {"success": "published", "skipped": "nothing new"}.get(ingest, "not started")


def runs_at(dag_id: str, moments_ms: Sequence[int]) -> list[dict[str, Any] | None]:
    """For each moment (Unix milliseconds), the run of the ingest DAG whose task `plan` or `ingest` was running, as they
    freeze windows; None if there was none. Of two it is the one whose task began earlier: a continuous run publishes
    until the newer one takes over. Its task ends some seconds later."""
    if not moments_ms:
        return []
    moments = [datetime.fromtimestamp(moment / 1000, UTC) for moment in moments_ms]
    with create_session() as session:
        attempts = [
            attempt
            for model in (TaskInstance, TaskInstanceHistory)  # the last attempt at each task, and those before it
            for attempt in session.execute(
                select(model.start_date, model.end_date, DagRun.run_id, DagRun.state)
                .join(DagRun, (DagRun.dag_id == model.dag_id) & (DagRun.run_id == model.run_id))
                .where(model.dag_id == dag_id, model.task_id.in_((PLAN_TASK, INGEST_TASK)))
                .where(model.start_date <= max(moments))
                .where(or_(model.end_date.is_(None), model.end_date >= min(moments)))
            )
        ]
    attempts.sort(key=lambda attempt: attempt.start_date)

    def run_at(moment: datetime) -> dict[str, Any] | None:
        for start, end, run_id, state in attempts:
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


def last_errors(runs: Mapping[str, str], may_read_logs: Callable[[str], bool]) -> dict[str, dict[str, Any]]:
    """The first failed task of one run each of several DAGs and, if the user ``may_read_logs`` of the DAG, the errors
    in the log of its last attempt that ended. ``runs`` has the run's id by the DAG's id, the result the errors by the
    DAG's id; it has no DAG without a failed attempt.

    ``attempt`` is the number of that attempt, of ``attempts``; ``retried`` says that another follows or is under way.
    ``running_since`` is when the other one began, None if it has not. The log of an attempt is read once by this
    process.
    """
    tried = or_(TaskInstance.state.is_(None), TaskInstance.state != "success") & (TaskInstance.try_number > 1)
    errors: dict[str, dict[str, Any]] = {}
    with create_session() as session:
        failed = session.scalars(
            select(TaskInstance)
            .options(selectinload(TaskInstance.dag_run))
            .where(TaskInstance.dag_id.in_(runs), TaskInstance.run_id.in_(set(runs.values())))
            .where(or_(TaskInstance.state.in_(("failed", "up_for_retry")), tried))
            .order_by(TaskInstance.end_date)
        )
        for instance in failed:
            if runs[instance.dag_id] == instance.run_id and instance.dag_id not in errors:
                errors[instance.dag_id] = _error(instance, logs=may_read_logs(instance.dag_id))
    return errors


def _error(failed: TaskInstance, *, logs: bool) -> dict[str, Any]:
    dag_id, run_id = failed.dag_id, failed.run_id
    has_ended = failed.state in ("failed", "up_for_retry")
    attempt = failed.try_number if has_ended else failed.try_number - 1
    where = f"/dags/{dag_id}/runs/{run_id}/tasks/{failed.task_id}"
    text = (
        _errors_in_log_once(failed, attempt)
        if logs
        else f"to see the error, you need Airflow's permission for task logs of {dag_id}"
    )
    attempts = {
        "attempt": attempt,
        "attempts": failed.max_tries + 1,
        "retried": failed.state != "failed",
        "running_since": _iso(failed.start_date) if failed.state == "running" else None,
    }
    return {"run_id": run_id, "task_id": failed.task_id, "text": text, "href": where, **attempts}


_MOST_TEXTS = 500
_texts: OrderedDict[tuple[str, str, str, int, Any], str] = OrderedDict()
"""Errors in the logs of attempts that ended, the latest last."""


def _errors_in_log_once(instance: TaskInstance, attempt: int) -> str:
    key = (instance.dag_id, instance.run_id, instance.task_id, attempt, instance.end_date)
    if (text := _texts.get(key)) is None:
        text = _errors_in_log(instance, attempt)
        if not text.startswith(_MAY_COME_LATER):  # a log is stored some time after the attempt ended
            _texts[key] = text
            while len(_texts) > _MOST_TEXTS:
                _texts.popitem(last=False)
    return text


_UNREADABLE = "the task's log cannot be read"
_NO_ERROR = "the task failed without an error in its log: it was killed, or did not start"
_MAY_COME_LATER = (_UNREADABLE, _NO_ERROR)


_LAST_LINES = 5000
"""Of a log: those of a stage of half a day."""


def running_log(dag_id: str, run_id: str, task_id: str) -> Collection[str]:
    """The last lines so far of the log of a running task; none if the task does not run, or its log cannot be read."""
    with create_session() as session:
        instance = session.scalar(
            select(TaskInstance)
            .options(selectinload(TaskInstance.dag_run))
            .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id == task_id)
            .where(TaskInstance.state == "running")
        )
        session.expunge_all()  # a log is read for seconds, without a connection to the database
    if instance is None:
        return ()
    try:
        lines = _read_log(instance, instance.try_number)
        return deque((str(getattr(line, "event", "")) for line in lines), _LAST_LINES)
    except Exception:  # of any log handler: the rest of the run's state can be shown without it
        return ()


def _read_log(instance: TaskInstance, attempt: int) -> Iterable[Any]:
    lines, _ = TaskLogReader().read_log_chunks(instance, attempt, {"end_of_log": False})
    return lines


def _errors_in_log(instance: Any, attempt: int) -> str:
    try:
        texts = []
        for line in _read_log(instance, attempt):
            event = str(getattr(line, "event", ""))
            values = line.model_dump()
            if event.startswith("ERROR ") or values.get("level") in ("error", "critical"):
                details = [detail.get("exc_value", "") for detail in values.get("error_detail") or ()]
                texts += [text for text in (event.removeprefix("ERROR "), *details) if text]
    except Exception as error:  # an unreadable log must not make the pipeline's state unavailable
        return f"{_UNREADABLE}: {error}"
    useful = [text for text in texts if text != "Task failed with exception"]
    return "\n".join(dict.fromkeys(useful)) or _NO_ERROR


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
