"""Edited XComs of one pipeline's DAGs have no effect on other pipelines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from changefeed.airflow import connections, ingest_operator, tasks, verify_dag
from changefeed.airflow.backfill_dag import backfill_dag
from changefeed.airflow.ingest_dag import ingest_dag
from changefeed.airflow.seek_dag import seek_dag
from changefeed.kafka.commit_log.snapshots import TableProgress
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.settings.file import read_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import FollowerSettings
from changefeed.snapshot.planning import SnapshotPlan

YAML = "name: own\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose jobs and connections raise an error: refused plans must not reach them."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("it was done")

    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    monkeypatch.setattr(ingest_operator.JobOperator, "_run", fail)
    monkeypatch.setattr(tasks, "task_connections", fail)
    (tmp_path / "own.yaml").write_text(YAML)
    return read_pipeline(tmp_path / "own.yaml")


def window(pipeline: str) -> Window:
    start, head = BinlogCoordinates("binlog.000001", 4), BinlogCoordinates("binlog.000001", 400)
    return Window(pipeline, 1, "uuid", start, head, "", "", 0)


def run(pipeline: str, expected: str) -> dict[str, Any]:
    """The plan of a window of ``pipeline`` that continues from the checkpoint of ``expected``."""
    return PlannedRun((window(pipeline),), Checkpoint.before(window(expected)), 0).to_json()


def context(task_id: str, xcom: object) -> Any:
    instance = SimpleNamespace(try_number=1, xcom_pull=lambda task_ids: {task_id: xcom}[task_ids])
    return {"ti": instance, "run_id": "manual__1", "dag_run": SimpleNamespace(run_id="manual__1")}


@pytest.mark.parametrize("planned", [run("other", "own"), run("own", "other")], ids=["window", "checkpoint"])
def test_windows_of_another_pipeline_are_neither_published_nor_committed(
    own: Pipeline, planned: dict[str, Any]
) -> None:
    ingest = ingest_dag(own).get_task("ingest")
    finish = seek_dag(own).get_task("finish")
    seek = {"finish": planned, "unfinished": [{"sealed": False}]}
    for attack in (
        lambda: ingest.execute(context("plan", planned)),
        lambda: finish.execute(context("plan_seek", seek)),
        lambda: tasks.commit_window("own", planned),
    ):
        with pytest.raises(AirflowFailException, match=r"expected a plan for pipeline 'own' .*, found one for 'other'"):
            attack()


def test_edited_windows_are_checked_again_before_the_job(own: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_operator, "skip_after_seek", lambda *_: None)
    monkeypatch.setattr(ingest_operator.JobOperator, "_run", lambda *_: "published")
    pulled = [run("own", "own"), run("other", "own")]
    edited: Any = {"ti": SimpleNamespace(try_number=1, xcom_pull=lambda task_ids: pulled.pop(0))}  # noqa: ARG005
    with pytest.raises(AirflowFailException, match=r"expected a plan for pipeline 'own' .*, found one for 'other'"):
        ingest_dag(own).get_task("ingest").execute(edited)


def test_snapshot_starts_where_the_log_says_not_the_xcom() -> None:
    table = TableProgress("shop", "staff", "id int", 5, at=("7",), at_end=True, rows=3, chunks=1, row_bytes=9)
    planned: dict[str, Any] = {
        "identity": "own.snapshot.1",
        "request": {"pipeline": "own"},
        "checkpoint": Checkpoint.before(window("own")).to_text(),
        "tables": [table.to_json()],
        "rules": {},
        "began_ms": 1,
        "topics": {},
    }
    assert SnapshotPlan.from_json(planned).tables == (TableProgress("shop", "staff", "id int", 5, row_bytes=9),)


def test_verify_connects_to_no_follower_of_another_pipeline(own: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def uri_of(connection: str) -> str:
        asked.append(connection)
        return f"mysql://{connection}"

    monkeypatch.setattr(connections, "airflow_lookup", uri_of)
    compare: Any = verify_dag.verify_dag(own).get_task("compare")
    compare._read_plan(context("plan", {"request": {"follower": "others_mysql"}, "run": ""}))
    with pytest.raises(AirflowFailException, match="the pipeline has no follower 'others_mysql'"):
        compare._further_connections(own)
    assert "others_mysql" not in asked
    followed = own.model_copy(update={"followers": [FollowerSettings(connection="others_mysql")]})
    (further,) = compare._further_connections(followed)
    assert connections.job_variables(followed, further)["AIRFLOW_CONN_OTHERS_MYSQL"] == "mysql://others_mysql"


@pytest.mark.parametrize(
    ("edited", "words"),
    [
        ({"request": {"pipeline": "other", "from_file": "binlog.000001"}}, "found one for 'other'"),
        ({"window": window("other").to_json()}, "found one for 'other'"),
        ({"identity": "other"}, "expected the plan of backfill 'own.backfill.manual__1' .*, found 'other'"),
        ({"identity": "own.backfill.manual__2"}, "found 'own.backfill.manual__2'"),
    ],
)
def test_a_backfill_of_another_pipeline_or_run_is_not_published(
    own: Pipeline, edited: dict[str, Any], words: str
) -> None:
    planned = {
        "request": {"pipeline": "own", "from_file": "binlog.000001"},
        "window": window("own").to_json(),
        "identity": "own.backfill.manual__1",
    }
    ingest = backfill_dag(own).get_task("ingest")
    with pytest.raises(AssertionError, match="it was done"):
        ingest.execute(context("plan", planned))
    with pytest.raises(AirflowFailException, match=words):
        ingest.execute(context("plan", {**planned, **edited}))
