"""The dags folder in Airflow's DAG processor: complete, valid, quick to parse, and without secrets."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow_database import PROGRAMS, PROJECT, create_database, environment

from changefeed.settings.file import load_pipelines

SECRET = "hush-hush-9000"
CONNECTIONS = {
    "AIRFLOW_CONN_MYSQL_SHOP": f"mysql://me:{SECRET}@127.0.0.1:1",
    "AIRFLOW_CONN_KAFKA_SHOP": f"kafka://127.0.0.1:1/?sasl.password={SECRET}",
    "AIRFLOW__CORE__FERNET_KEY": "",
}

GOOD = """\
name: {name}
source: {{connection: mysql_shop}}
kafka: {{connection: kafka_shop}}
"""
FULL = (
    GOOD
    + """\
schedule: "17 3 * * *"
retries: 5
retry_delay_seconds: 7
owner: payments
tags: [eu]
on_table_error: park
start: snapshot
pool: shops
"""
)


def parse_dags(tmp_path: Path, **settings: str) -> dict[str, Any]:
    """Parse the dags folder in another process; returns the result of bag_process.py."""
    output, env = tmp_path / "found.json", environment(tmp_path / "airflow") | CONNECTIONS | settings
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("bag_process.py")), str(output)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(output.read_text())
    return result


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The dags folder with the shipped pipelines."""
    return parse_dags(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with valid pipelines, and files that are invalid in different ways."""
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "one.yaml").write_text(GOOD.format(name="one"))
    transforms = "transforms: [{tables: a.b, function: mask_cards, arguments: {column: card}}]\n"
    (folder / "full.yaml").write_text(FULL.format(name="full") + transforms)
    (folder / "function.yaml").write_text(GOOD.format(name="function") + transforms.replace("column", "columm"))
    (folder / "fast.yaml").write_text(GOOD.format(name="fast") + "schedule: '@continuous'\nwindows: {run_for: 15m}\n")
    (folder / "unknown.yaml").write_text(GOOD.format(name="unknown") + "topcs: {}\n")
    (folder / "mistyped.yaml").write_text(GOOD.format(name="mistyped") + "retries: many\n")
    (folder / "schedule.yaml").write_text(GOOD.format(name="schedule") + "schedule: every day\n")
    (folder / "broken.yaml").write_text("name: [\n")
    followed = "followers: [{connection: copy_a}, {connection: copy_b, databases: [shop]}]\nvalues: {temporal: iso}\n"
    (folder / "followed.yaml").write_text(GOOD.format(name="followed") + followed)
    (folder / "masked.yaml").write_text(GOOD.format(name="masked") + followed + "skip: [d]\n")
    (folder / "twin.yaml").write_text(GOOD.format(name="twin") + "snapshot: {new_tables: true}\n")
    (folder / "twin.copy.yaml").write_text(GOOD.format(name="twin"))
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, pipelines: Path) -> dict[str, Any]:
    """The dags folder with ``pipelines``."""
    settings = {"CHANGEFEED_PIPELINES": str(pipelines), "CHANGEFEED_BACKFILL_POOL": "by_hand"}
    return parse_dags(tmp_path_factory.mktemp("mixed"), **settings)


def test_no_dag_file_has_an_import_error(ours: dict[str, Any]) -> None:
    assert ours["import_errors"] == {}


def test_dags_need_no_optional_provider(ours: dict[str, Any]) -> None:
    assert "openlineage" not in ours["imported"]


def test_each_pipeline_has_its_ingest_dag(ours: dict[str, Any]) -> None:
    pipelines, errors = load_pipelines(PROJECT / "include" / "pipelines")
    assert not errors
    ingest_dags = {dag_id for dag_id in ours["dags"] if dag_id.startswith("changefeed_ingest__")}
    assert ingest_dags == {f"changefeed_ingest__{name}" for name in pipelines}


@pytest.mark.parametrize("kind", ["ingest", "seek", "backfill", "snapshot", "verify"])
def test_dag_names_only_its_own_pipeline(mixed: dict[str, Any], kind: str) -> None:
    dags = {name: mixed["dags"][f"changefeed_{kind}__{name}"] for name in ("one", "full", "twin")}
    for name, dag in dags.items():
        assert dag["tags"] == sorted({"changefeed", kind, f"pipeline:{name}", *(("eu",) if name == "full" else ())})
        serialized = json.loads(dag["serialized"])["dag"]
        assert serialized["dag_display_name"] == f"changefeed {name}: {kind}"
        assert "pipeline" not in dict(serialized["params"])
        assert {others for others in dags if others != name and f'"{others}"' in dag["serialized"]} == set()


def test_an_ingest_dag_is_plan_then_ingest_then_commit(ours: dict[str, Any]) -> None:
    tasks = ours["dags"]["changefeed_ingest__shop"]["tasks"]
    assert set(tasks) >= {"plan", "ingest", "commit"}
    assert tasks["plan"]["upstream"] == []
    assert tasks["ingest"]["upstream"] == ["plan"]
    assert "ingest" in tasks["commit"]["upstream"]
    assert set(tasks["commit"]["upstream"]) <= {"plan", "ingest"}
    assert "SparkSubmitOperator" in tasks["ingest"]["operators"]
    assert any("ShortCircuit" in operator for operator in tasks["plan"]["operators"]), (
        "if nothing is new, the other tasks are skipped"
    )


def test_ingest_dag_has_one_active_run_and_no_catchup(mixed: dict[str, Any]) -> None:
    for name in ("one", "full"):
        dag = mixed["dags"][f"changefeed_ingest__{name}"]
        assert (dag["max_active_runs"], dag["catchup"]) == (1, False)


def test_continuous_runs_begin_when_the_time_of_the_last_one_is_over(mixed: dict[str, Any]) -> None:
    dag = mixed["dags"]["changefeed_ingest__fast"]
    assert (dag["max_active_runs"], dag["catchup"]) == (2, False), "the next run takes over from the last one"
    timetable = json.loads(dag["serialized"])["dag"]["timetable"]
    assert (timetable["__type"].rpartition(".")[2], timetable["__var"]["delta"]) == ("DeltaTriggerTimetable", 900.0)


def test_schedule_retries_owner_and_tags_are_the_pipelines(mixed: dict[str, Any]) -> None:
    full, one = (mixed["dags"][f"changefeed_ingest__{name}"] for name in ("full", "one"))
    assert full["schedule"] == "17 3 * * *"
    assert set(full["tags"]) >= {"changefeed", "eu"}
    for task_id in ("plan", "ingest", "commit"):
        task = full["tasks"][task_id]
        assert (task["retries"], task["retry_delay_seconds"], task["owner"]) == (5, 7, "payments")
        assert (one["tasks"][task_id]["retries"], one["tasks"][task_id]["retry_delay_seconds"]) == (2, 30)


def test_invalid_pipelines_and_copies_do_not_affect_the_others(mixed: dict[str, Any]) -> None:
    ingest_dags = {dag_id for dag_id in mixed["dags"] if dag_id.startswith("changefeed_ingest__")}
    assert ingest_dags == {f"changefeed_ingest__{name}" for name in ("one", "full", "twin", "followed", "fast")}


def test_no_dag_that_is_started_by_hand_takes_a_slot_of_the_pipelines_pool(mixed: dict[str, Any]) -> None:
    """A continuous run needs two slots when the next one takes over, also while a verification is at work."""
    pools = {
        (dag_id, task_id): task["pool"]
        for dag_id, dag in mixed["dags"].items()
        if dag_id.endswith("__full")
        for task_id, task in dag["tasks"].items()
        if task["pool"] != "default_pool"
    }
    by_hand = {("backfill", "ingest"), ("snapshot", "snapshot"), ("verify", "compare"), ("unpark", "unpark")}
    assert pools == {
        ("changefeed_ingest__full", "ingest"): "shops",
        **{(f"changefeed_{kind}__full", task_id): "by_hand" for kind, task_id in by_hand},
    }


def test_only_a_pipeline_that_parks_tables_has_an_unpark_dag(mixed: dict[str, Any]) -> None:
    assert [dag_id for dag_id in mixed["dags"] if "unpark" in dag_id] == ["changefeed_unpark__full"]
    dag = mixed["dags"]["changefeed_unpark__full"]
    upstream = {name: task["upstream"] for name, task in dag["tasks"].items()}
    assert upstream == {"plan": [], "unpark": ["plan"], "finish": ["plan", "unpark"]}
    assert dag["max_active_runs"] == 1


def test_airflow_starts_the_first_snapshot_of_a_pipeline_that_begins_with_one(mixed: dict[str, Any]) -> None:
    schedules = {name: mixed["dags"][f"changefeed_snapshot__{name}"]["schedule"] for name in ("one", "full", "twin")}
    assert schedules == {"one": "None", "full": "@once", "twin": mixed["dags"]["changefeed_ingest__twin"]["schedule"]}
    for name in ("full", "twin"):
        tasks = mixed["dags"][f"changefeed_snapshot__{name}"]["tasks"].values()
        assert {task["retries"] for task in tasks} == {1000}, "it waits until somebody has mended a wrong setting"


def test_replicate_dag_has_a_task_for_each_follower(mixed: dict[str, Any]) -> None:
    replicate_dags = [dag_id for dag_id in mixed["dags"] if dag_id.startswith("changefeed_replicate__")]
    assert replicate_dags == ["changefeed_replicate__followed"]
    dag = mixed["dags"]["changefeed_replicate__followed"]
    assert (dag["max_active_runs"], dag["catchup"]) == (1, False)
    assert {name: task["upstream"] for name, task in dag["tasks"].items()} == {"to_copy_a": [], "to_copy_b": []}


def test_freshness_dag_runs_by_the_sites_interval_before_other_tasks(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    for text, minutes in (("freshness: {every_minutes: 3}\n", 3), ("freshness: {every_minute: 3}\n", 10)):
        site.write_text(text)
        parsed = parse_dags(tmp_path, CHANGEFEED_SITE=str(site))
        assert parsed["import_errors"] == {}, "with an invalid site file its task fails, and no other DAG is affected"
        dag = parsed["dags"]["changefeed_freshness"]
        assert (dag["schedule"], dag["catchup"], dag["max_active_runs"]) == (f"0:{minutes:02}:00", False, 1)
        assert set(dag["tags"]) == {"changefeed", "freshness"}
        assert (dag["tasks"]["check"]["retries"], dag["tasks"].keys()) == (0, {"check"})
        ((task,),) = [json.loads(dag["serialized"])["dag"]["tasks"]]
        assert (task["__var"]["priority_weight"], task["__var"]["weight_rule"]) == (1_000_000, "absolute")
        assert "changefeed_ingest__shop" in parsed["dags"]


def test_import_error_names_the_files_without_their_content(mixed: dict[str, Any]) -> None:
    """Airflow shows import errors also to users who may not see the pipeline."""
    (error,) = mixed["import_errors"].values()
    assert (
        "broken.yaml, function.yaml, masked.yaml, mistyped.yaml, schedule.yaml, twin.copy.yaml, unknown.yaml." in error
    )
    assert [words for words in ("topcs", "many", "every day", "columm") if words in error] == []


def test_airflow_schedules_valid_pipelines_despite_invalid_ones(tmp_path: Path, pipelines: Path) -> None:
    """Airflow sets all DAGs of a file with an import error to stale, so no DAG may be in such a file."""
    env = create_database(tmp_path / "airflow", CONNECTIONS | {"CHANGEFEED_PIPELINES": str(pipelines)})
    subprocess.run(
        [str(PROGRAMS / "airflow"), "dags", "reserialize"], env=env, capture_output=True, text=True, check=True
    )
    with sqlite3.connect(tmp_path / "airflow" / "airflow.db") as database:
        errors = database.execute("SELECT filename, stacktrace FROM import_error").fetchall()
        dags = database.execute("SELECT dag_id, is_stale, has_import_errors FROM dag").fetchall()
        serialized = str(database.execute("SELECT data, data_compressed FROM serialized_dag").fetchall())
    assert [filename for filename, _ in errors] == ["refused_pipelines.py"]
    assert "unknown.yaml" in errors[0][1]
    assert {"changefeed_ingest__one", "changefeed_ingest__full"} <= {dag_id for dag_id, *_ in dags}
    assert [dag_id for dag_id, is_stale, has_errors in dags if is_stale or has_errors] == []
    assert SECRET not in serialized


def test_no_secret_is_in_a_serialized_dag(ours: dict[str, Any], mixed: dict[str, Any]) -> None:
    for output in (ours, mixed):
        assert output["dags"]
        for dag in output["dags"].values():
            assert SECRET not in dag["serialized"]
            assert "mysql://" not in dag["serialized"]


def test_parsing_imports_neither_spark_nor_a_client(ours: dict[str, Any]) -> None:
    """Only tasks import them, because the DAG processor parses each file repeatedly."""
    heavy = {
        "pyspark",
        "pyarrow",
        "pandas",
        "numpy",
        "numba",
        "kafka",
        "confluent_kafka",
        "pymysql",
        "pymysqlreplication",
    }
    assert not heavy & set(ours["imported"])
