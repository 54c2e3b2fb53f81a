"""A live Airflow with pipelines in a git repository, as a DAG bundle: no process has a folder of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow_site import OVER_REST, PIPELINE, Site, site, wait_until
from integration.topic_rows import records_of

from devstack.home import PROJECT
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

INGEST = "changefeed_ingest__gitted"
API = "/changefeed/api/pipelines"
BUNDLE = "feeds"
DAG_FILE = """\
from pathlib import Path
from changefeed.airflow.bundle_dags import bundle_dags
globals().update(bundle_dags(Path(__file__).parent, freshness_dag_id="changefeed_freshness_feeds"))
"""
FUNCTION = """\
def transform(change, version):
    change.after["text"] = f"function {number}, settings {{version}}"
    return change
"""

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]


@dataclass
class Repository:
    """A git repository with a DAG file, one pipeline and its function, all of one version."""

    folder: Path
    pipeline: str

    def commit(self, version: int) -> str:
        """Commit the files of ``version``; returns the commit's id."""
        for name, text in {
            "feeds.py": DAG_FILE,
            "pipelines/gitted.yaml": self.pipeline.replace("VERSION", str(version)),
            "transforms/stamp.py": FUNCTION.format(number=version),
        }.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self._git("add", ".")
        self._git("commit", "--quiet", "--message", f"version {version}")
        return self._git("rev-parse", "HEAD").strip()

    def init(self) -> None:
        self.folder.mkdir()
        self._git("init", "--quiet", "--initial-branch", "main")

    def _git(self, *arguments: str) -> str:
        author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        return subprocess.run(
            ["git", *author, *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout


@pytest.fixture
def gitted(
    tmp_path: Path, source_mysql: MysqlServer, kafka_broker: KafkaBroker, spark_connect: SparkConnectServer
) -> Iterator[tuple[Site, Repository]]:
    source_mysql.execute(
        "CREATE DATABASE gitted", "CREATE TABLE gitted.t (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(80))"
    )
    more = (
        f"pool: gate\nspark: {{connect: '{spark_connect.url}'}}\n"
        "transforms: [{tables: gitted.t, function: stamp, arguments: {version: VERSION}}]\n"
    )
    repository = Repository(
        tmp_path / "repository",
        PIPELINE.format(name="gitted", database="gitted", server_ids="65600-65631", more=more),
    )
    repository.init()
    repository.commit(1)
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    remote = {"repo_url": str(repository.folder), "tracking_ref": "main", "refresh_interval": 2}
    bundles = [
        {"name": "dags-folder", "classpath": local, "kwargs": {"path": str(PROJECT / "dags")}},
        {"name": BUNDLE, "classpath": "airflow.providers.git.bundles.git.GitDagBundle", "kwargs": remote},
    ]
    settings = {
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(tmp_path / "bundles"),
        "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    }
    with site(tmp_path / "site", source_mysql, kafka_broker, spark_connect, settings) as airflow:
        yield airflow, repository
    source_mysql.execute("DROP DATABASE gitted")


def set_gate(airflow: Site, slots: int) -> None:
    """Set the slots of the pool in which the pipeline's jobs run; with 0 they wait."""
    pool = {"slots": slots, "include_deferred": False}
    with airflow.client() as client:
        if client.post("/api/v2/pools", json={"name": "gate", **pool}).status_code == 409:
            answer = client.patch("/api/v2/pools/gate", json={"pool": "gate", **pool})
            assert answer.status_code == 200, answer.text


def get(airflow: Site, path: str, user: str = "ada") -> dict[str, Any]:
    with airflow.client(user) as client:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content


def texts(airflow: Site) -> list[str]:
    rows = [json.loads(record.value) for record in records_of(airflow.kafka.bootstrap, "gitted.t")]
    return sorted((row.get("payload") or row)["after"]["text"] for row in rows)


def test_run_uses_the_version_of_its_plan_and_the_next_run_the_next_version(gitted: tuple[Site, Repository]) -> None:
    """One test, because Airflow takes long to start."""
    airflow, repository = gitted
    first = wait_until(lambda: known_version(airflow), f"Airflow knows {INGEST}", 400)
    set_gate(airflow, 1)
    assert airflow.run(INGEST)["ingest"] == "skipped"

    set_gate(airflow, 0)
    airflow.mysql.execute("INSERT INTO gitted.t (text) VALUES ('a')")
    run_id = airflow.trigger(INGEST)
    plan = f"/api/v2/dags/{INGEST}/dagRuns/{run_id}/taskInstances/plan"
    wait_until(lambda: get(airflow, plan)["state"] == "success", "the run is planned", 400)
    second = repository.commit(2)
    wait_until(lambda: known_version(airflow) == second, "Airflow has version 2", 400)
    assert texts(airflow) == []
    set_gate(airflow, 1)
    assert airflow.wait_for_run(INGEST, run_id)[""] == "success", airflow.log(INGEST, "ingest", run_id)
    assert get(airflow, f"/api/v2/dags/{INGEST}/dagRuns/{run_id}")["bundle_version"] == first
    assert texts(airflow) == ["function 1, settings 1"]

    airflow.mysql.execute("INSERT INTO gitted.t (text) VALUES ('b')")
    assert airflow.run(INGEST)[""] == "success"
    assert texts(airflow) == ["function 1, settings 1", "function 2, settings 2"]

    the_page_shows_the_pipeline_and_its_runs(airflow)
    rest_changes_no_pipeline_of_a_bundle(airflow)


def known_version(airflow: Site) -> str | None:
    with airflow.client() as client:
        version = client.get(f"/api/v2/dags/{INGEST}").json().get("bundle_version")
        return str(version) if version else None


def the_page_shows_the_pipeline_and_its_runs(airflow: Site) -> None:
    listed = {each["name"]: each["bundle"] for each in get(airflow, API)["pipelines"]}
    assert listed == {"gitted": BUNDLE, "idle": None}
    shown = get(airflow, f"{API}/gitted")
    assert (shown["bundle"], shown["position"]["lag_bytes"], shown["standing"]["text"]) == (BUNDLE, 0, "up to date")
    assert shown["topics"] == {"gitted.t": "gitted.t"}
    assert "arguments: {version: 2}" in shown["yaml"]
    assert "version: 2" not in get(airflow, f"{API}/gitted", "vera")["yaml"], "arguments may be secrets"
    assert len(get(airflow, f"{API}/gitted/windows")["windows"]) == 2
    with airflow.client() as client:
        assert 'changefeed_lag_bytes{pipeline="gitted"} 0' in client.get("/changefeed/metrics").text


def rest_changes_no_pipeline_of_a_bundle(airflow: Site) -> None:
    text = OVER_REST.format(name="gitted", database="gitted", more="")
    with airflow.client() as client:
        tag = {"If-Match": client.get(f"{API}/gitted").headers["ETag"]}
        answers = [
            client.put(f"{API}/gitted", json={"yaml": text}, headers=tag),
            client.delete(f"{API}/gitted", headers=tag),
            client.post(API, json={"yaml": text}),
        ]
    for answer in answers:
        assert (answer.status_code, f"DAG bundle '{BUNDLE}'" in answer.text) == (409, True), answer.text
    assert sorted(path.name for path in airflow.pipelines.glob("*.yaml")) == ["idle.yaml"]
