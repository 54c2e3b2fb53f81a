"""The states of several DAGs, and the errors of their last runs, from few queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.models import import_all_models
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.models.xcom import XCOM_RETURN_KEY, XComModel
from fastapi import HTTPException
from sqlalchemy import create_engine, event, update
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from changefeed.settings.file import parse_pipeline
from changefeed.settings.folder import PipelineFolder
from changefeed_web import actions, dag_state, pipelines
from changefeed_web.dag_state import dag_states, last_errors

BEGAN = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that are sent to a database with three DAGs: `a` is paused and has two runs, `b` has one."""
    import_all_models()  # to which foreign keys of the tables refer
    engine = create_engine("sqlite://", poolclass=StaticPool)
    for model in (DagModel, DagRun, TaskInstance, TaskInstanceHistory, XComModel):
        model.__table__.create(engine)  # type: ignore[attr-defined]

    @contextmanager
    def session() -> Iterator[Session]:
        with Session(engine) as opened:
            yield opened

    with engine.begin() as connection:
        for dag_id, paused in (("a", True), ("b", False), ("c", False)):
            dag = {"dag_id": dag_id, "is_paused": paused, "is_stale": dag_id == "c", "bundle_name": "dags"}
            connection.execute(_insert(DagModel, dag))
        runs = [("a", "1", "success", 0), ("a", "2", "running", 60), ("a", "3", "queued", 30), ("b", "2", "failed", 0)]
        runs += [("f", "1", "running", 0), ("g", "1", "running", 0)]
        runs += [("e", "idle", "success", 0), ("e", "published", "success", 10), ("e", "cancelled", "failed", 20)]
        for dag_id, run_id, state, seconds in runs:
            moment = BEGAN + timedelta(seconds=seconds)
            run = {"dag_id": dag_id, "run_id": run_id, "state": state, "run_after": moment, "log_template_id": 1}
            connection.execute(_insert(DagRun, run))
        tasks = [("a", "2", "plan", "success"), ("a", "2", "ingest", "up_for_retry"), ("b", "2", "ingest", "failed")]
        tasks += [("f", "1", "plan", "success"), ("f", "1", "ingest", "failed"), ("g", "1", "ingest", "running")]
        tasks += [("e", "published", "plan", "success"), ("e", "published", "ingest", "success")]
        tasks += [("e", run_id, task, "skipped") for run_id in ("idle", "cancelled") for task in ("plan", "ingest")]
        for dag_id, run_id, task_id, state in tasks:
            task = {"id": uuid4(), "dag_id": dag_id, "run_id": run_id, "task_id": task_id, "state": state}
            connection.execute(_insert(TaskInstance, {**task, "try_number": 1, "max_tries": 2, "map_index": -1}))
    monkeypatch.setattr(dag_state, "create_session", session)
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
    yield sent
    engine.dispose()


def _insert(model: Any, values: dict[str, Any]) -> Any:
    """An INSERT of ``values``, and of 0 in the other columns that need a value."""
    columns = model.__table__.columns
    needed = [one.name for one in columns if not (one.nullable or one.primary_key or one.default or one.server_default)]
    return model.__table__.insert().values({**dict.fromkeys(needed, 0), **values})


def test_each_dag_has_its_own_latest_run_and_unfinished_runs(queries: list[str]) -> None:
    states = dag_states(["a", "b", "c", "d"])
    assert len(queries) == 4
    assert [states[each]["known"] for each in "abcd"] == [True, True, False, False]
    assert states["a"]["last_run"]["run_id"] == "2"
    assert (states["a"]["running"], states["a"]["held"]) == (["2", "3"], ["2", "3"])
    assert states["b"]["last_run"]["state"] == "failed"
    assert (states["b"]["running"], states["b"]["held"], states["d"]["paused"]) == ([], [], None)
    assert states["c"]["last_run"] is None
    assert dag_state.dag_state("b") == states["b"]


def test_errors_are_of_the_named_runs_and_their_logs_are_read_once(
    queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(dag_state, "_errors_in_log", lambda failed, _: read.append(failed.dag_id) or "no broker")
    for _ in range(2):
        queries.clear()
        errors = last_errors({"a": "2", "b": "2", "c": "2"}, lambda dag_id: dag_id == "a")
        assert len(queries) == 2
        assert {dag_id: (error["task_id"], error["retried"]) for dag_id, error in errors.items()} == {
            "a": ("ingest", True),
            "b": ("ingest", False),
        }
        assert errors["a"]["text"] == "no broker"
        assert errors["b"]["text"].startswith("to see the error, you need Airflow's permission")
    assert read == ["a"]
    assert last_errors({"a": "1", "b": "3"}, lambda _: True) == {}


@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize(
    ("state", "number", "attempt", "running_since"),
    [
        ("up_for_retry", 1, 1, None),
        ("queued", 2, 1, None),
        ("running", 2, 1, BEGAN.isoformat()),
        ("failed", 3, 3, None),
    ],
)
def test_error_of_an_attempt_says_since_when_the_next_one_is_running(
    monkeypatch: pytest.MonkeyPatch, state: str, number: int, attempt: int, running_since: str | None
) -> None:
    """A continuous run publishes for an hour after an attempt failed."""
    monkeypatch.setattr(dag_state, "_errors_in_log", lambda *_: "no broker")
    with vars(dag_state)["create_session"]() as session:
        task = TaskInstance.dag_id == "g"
        values = {"state": state, "try_number": number, "start_date": BEGAN}
        session.execute(update(TaskInstance).where(task).values(values))
        session.commit()
    error = last_errors({"g": "1"}, lambda _: True)["g"]
    assert (error["attempt"], error["running_since"], error["text"]) == (attempt, running_since, "no broker")


@pytest.mark.usefixtures("queries")
def test_run_that_was_cancelled_before_its_first_task_is_shown_as_cancelled() -> None:
    assert [run["run_id"] for run in dag_state.runs("e", 10)] == ["cancelled", "published"]
    said = dag_state.outcomes("e", ["cancelled", "published", "idle"])
    assert said == {"cancelled": "cancelled", "published": "published", "idle": "nothing new"}


@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize(
    ("task_id", "returned", "outcome"),
    [
        ("ingest", {"rows": {}, "records": {}}, "nothing new"),
        ("ingest", {"rows": {"shop.orders": {"c": 1}}, "records": {"shop.orders": 1}}, "published"),
        ("ingest", {"rows": {}, "records": {"changefeed.shop.schema-changes": 1}}, "published"),
        ("ingest", None, "published"),
        ("plan", {"rows": {}, "records": {}}, "published"),
    ],
    ids=["idle", "rows", "DDL statements", "no answer", "of another task"],
)
def test_continuous_run_without_rows_and_records_found_nothing_new(
    task_id: str, returned: dict[str, Any] | None, outcome: str
) -> None:
    """Its task `ingest` succeeds also then, when its time is over."""
    with vars(dag_state)["create_session"]() as session:
        values = {"dag_run_id": 1, "dag_id": "e", "run_id": "published", "task_id": task_id, "map_index": -1}
        session.execute(_insert(XComModel, {**values, "key": XCOM_RETURN_KEY, "value": returned, "timestamp": BEGAN}))
        session.commit()
    assert dag_state.outcomes("e", ["published"]) == {"published": outcome}


@pytest.mark.usefixtures("queries")
def test_run_whose_tasks_have_all_ended_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "create_session", vars(dag_state)["create_session"])
    with pytest.raises(HTTPException) as refused:
        actions._mark_failed("f", "1")
    assert refused.value.status_code == 409
    assert refused.value.detail.startswith("expected an unfinished task in run 1, found that all have ended")


@pytest.mark.usefixtures("queries")
def test_log_is_read_outside_of_the_session_and_its_last_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may be large, and on a server that is slow."""
    create_session = vars(dag_state)["create_session"]
    opened: list[Any] = []

    @contextmanager
    def session() -> Iterator[Any]:
        with create_session() as one:
            opened.append(one)
            yield one
            opened.remove(one)

    def read(*_: object) -> Iterator[SimpleNamespace]:
        assert not opened
        yield from (SimpleNamespace(event=str(number)) for number in range(6000))

    monkeypatch.setattr(dag_state, "create_session", session)
    monkeypatch.setattr(dag_state, "_read_log", read)
    assert list(dag_state.running_log("g", "1", "ingest")) == [str(number) for number in range(1000, 6000)]
    assert list(dag_state.running_log("f", "1", "ingest")) == []


@pytest.mark.parametrize(
    ("settings", "running", "held", "is_deleted"),
    [
        ("windows: {every: 1s}\n", ["r"], [], False),
        ("windows: {every: 1s}\n", ["r"], ["r"], True),
        ("windows: {every: 1s}\n", [], [], True),
        ("", ["r"], [], True),
    ],
    ids=["publishes", "is held", "has ended", "ends by itself"],
)
def test_continuous_pipeline_is_not_deleted_while_its_run_publishes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    settings: str,
    running: list[str],
    held: list[str],
    is_deleted: bool,
) -> None:
    """Its job would publish on, and could not be cancelled."""
    file = tmp_path / "shop.yaml"
    file.write_text(f"name: shop\nsource: {{connection: m}}\nkafka: {{connection: k}}\n{settings}")
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    monkeypatch.setattr(pipelines, "require_permission", lambda *_, **__: None)
    monkeypatch.setattr(pipelines, "write_audit_log", lambda *_, **__: None)
    monkeypatch.setattr(pipelines, "dag_state", lambda _: {"running": running, "held": held})
    tag = PipelineFolder(tmp_path).text("shop").tag
    if is_deleted:
        pipelines.delete_pipeline("shop", None, tag)
    else:
        with pytest.raises(HTTPException, match="wait until the run has ended, then delete it") as refused:
            pipelines.delete_pipeline("shop", None, tag)
        assert refused.value.status_code == 409
    assert file.exists() is not is_deleted


@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize("schedule", ["@continuous", "*/5 * * * *", None])
def test_schedule_is_shown_as_in_the_yaml(monkeypatch: pytest.MonkeyPatch, schedule: str | None) -> None:
    """Airflow shows the schedule of continuous runs as the time between two of them."""
    monkeypatch.setattr(pipelines, "missing_dags", dict.fromkeys)
    text = f"name: shop\nsource: {{connection: m}}\nkafka: {{connection: k}}\nschedule: {json.dumps(schedule)}\n"
    pipeline = parse_pipeline(f"{text}windows: {{every: 1s}}\n", "shop.yaml")
    (shown,) = pipelines._describe_each([pipeline], {}, None, [None])
    assert shown["schedule"] == schedule


RUNS = {"planned": (0, 50), "old": (60, 760), "next": (600, 1300), "last": (1200, None)}
ATTEMPTS = [
    ("planned", "plan", 1, 8),
    ("planned", "ingest", 10, 40),
    ("old", "plan", 61, 68),
    ("old", "ingest", 70, 200),
    ("next", "plan", 601, 608),
    ("next", "ingest", 620, 1240),
    ("last", "plan", 1201, 1208),
    ("last", "ingest", 1220, None),
]
"""Begin and end in seconds of runs and of their tasks: the run `last` takes over from `next` before its DAG run has
ended, and the run `old` is retried while `next` publishes."""


def seconds(number: float | None) -> datetime | None:
    return None if number is None else BEGAN + timedelta(seconds=number)


@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize(
    ("retried_at", "at", "run"),
    [
        (None, 5, "planned"),
        (None, 45, None),
        (None, 199, "old"),
        (None, 700, "next"),
        (None, 1230, "next"),
        (None, 1250, "last"),
        (650, 199, "old"),
        (650, 300, None),
        (650, 640, "next"),
        (650, 700, "next"),
    ],
)
def test_window_is_of_the_run_whose_task_published_it(retried_at: int | None, at: int, run: str | None) -> None:
    """Not of an older one that has handed over, or waits for a retry, and whose DAG run has not ended."""
    with vars(dag_state)["create_session"]() as session:
        for run_id, (start, end) in RUNS.items():
            values = {"dag_id": "h", "run_id": run_id, "state": "success", "run_after": BEGAN, "log_template_id": 1}
            session.execute(_insert(DagRun, {**values, "start_date": seconds(start), "end_date": seconds(end)}))
        for run_id, task_id, start, end in ATTEMPTS:
            task = {"dag_id": "h", "run_id": run_id, "task_id": task_id, "max_tries": 2, "map_index": -1}
            dates = {"start_date": seconds(start), "end_date": seconds(end)}
            if (run_id, task_id) == ("old", "ingest") and retried_at is not None:
                session.execute(
                    _insert(TaskInstanceHistory, {**task, **dates, "task_instance_id": uuid4(), "try_number": 1})
                )
                dates = {"start_date": seconds(retried_at), "end_date": None}
            session.execute(_insert(TaskInstance, {**task, **dates, "id": uuid4(), "try_number": 1}))
        session.commit()
    moment = BEGAN + timedelta(seconds=at)
    (found,) = dag_state.runs_at("h", [int(moment.timestamp() * 1000)])
    assert (found and found["run_id"]) == run
