"""Runs that users start in Airflow, not on our page: their conf names no other pipeline, template or option."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from airflow_site import Site

SEEK, BACKFILL, INGEST = (f"changefeed_{kind}__idle" for kind in ("seek", "backfill", "ingest"))
TEMPLATE = "{{ 7 * 7 }}{{ conn.mysql_shop.password }}"

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "seek of another pipeline": (SEEK, {"pipeline": "page", "to": "latest", "why": "mine", "apply": True}),
    "backfill of another pipeline": (BACKFILL, {"pipeline": "page", "from_file": "binlog.000001"}),
    "seek to a template": (SEEK, {"to": TEMPLATE, "why": TEMPLATE, "apply": True}),
}

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def logs(airflow_site: Site) -> dict[str, str]:
    """The log of the first task of each run. All runs fail in this task."""
    airflow_site.wait_for_dag(SEEK, BACKFILL)
    started = {name: airflow_site.trigger(dag_id, conf) for name, (dag_id, conf) in RUNS.items()}
    texts = {}
    for name, (dag_id, _) in RUNS.items():
        first = "plan_seek" if dag_id == SEEK else "plan"
        states = airflow_site.wait_for_run(dag_id, started[name], 600)
        assert states.pop(first) == "failed"
        assert set(states.values()) <= {"failed", "upstream_failed"}
        with airflow_site.client() as client:
            log = f"/api/v2/dags/{dag_id}/dagRuns/{started[name]}/taskInstances/{first}/logs/1"
            texts[name] = client.get(log, params={"full_content": True}, headers={"Accept": "application/json"}).text
    return texts


@pytest.mark.parametrize("kind", ["seek", "backfill"])
def test_a_run_cannot_name_another_pipeline(logs: dict[str, str], kind: str) -> None:
    assert "the run's conf has the unknown key 'pipeline'" in logs[f"{kind} of another pipeline"]


def test_a_parameter_is_no_template(airflow_site: Site, logs: dict[str, str]) -> None:
    password = airflow_site.mysql.url.partition("://")[2].partition("@")[0].partition(":")[2]
    assert f"'{TEMPLATE}' is not where a pipeline can seek to" in logs["seek to a template"]
    assert password not in logs["seek to a template"]


@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        (INGEST, {"max_seconds": "1 --conf spark.driver.extraJavaOptions=x"}),
        (INGEST, {"max_seconds": TEMPLATE}),
        (INGEST, {"until": "--conf"}),
        (BACKFILL, {"from_file": "binlog.000001", "suffix": ".x --conf"}),
    ],
    ids=str,
)
def test_invalid_parameter_starts_nothing(airflow_site: Site, dag_id: str, conf: dict[str, Any]) -> None:
    with airflow_site.client() as client:
        answer = client.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf})
    assert answer.status_code == 400, answer.text


@pytest.fixture
def limited(airflow_site: Site) -> Iterator[Site]:
    """Rita has all rights on another pipeline."""
    airflow_site.wait_for_dag(INGEST, SEEK, BACKFILL)
    airflow_site.give_rights("* * changefeed_*__page")
    yield airflow_site
    airflow_site.give_rights()


def test_rights_on_one_pipeline_allow_nothing_on_another_in_airflow(limited: Site) -> None:
    run_id = "manual__none"
    new = {"logical_date": None, "conf": {"to": "latest", "why": "x", "from_file": "binlog.000001"}}
    with limited.client("rita") as client:
        for dag_id in (INGEST, SEEK, BACKFILL):
            dag = f"/api/v2/dags/{dag_id}"
            task = f"{dag}/dagRuns/{run_id}/taskInstances/plan"
            for method, path, body in (
                ("GET", dag, None),
                ("PATCH", dag, {"is_paused": True}),
                ("POST", f"{dag}/dagRuns", new),
                ("GET", f"{dag}/dagRuns", None),
                ("POST", f"{dag}/clearTaskInstances", {"dag_run_id": run_id}),
                ("PATCH", task, {"new_state": "success"}),
                ("PATCH", f"{task}/xcomEntries/return_value", {"value": {}}),
                ("GET", f"{task}/logs/1", None),
            ):
                assert client.request(method, path, json=body).status_code == 403, f"{method} {path}"
        seen = json.dumps(client.get("/api/v2/dags", params={"limit": 500}).json())
    assert "idle" not in seen
