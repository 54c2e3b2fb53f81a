"""The freshness DAG in a live Airflow: it notices pipelines whose DAGs do not run, and reports what holds them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from airflow_site import Site

from changefeed.airflow.freshness_dag import CHECKED_KEY, FRESHNESS_DAG_ID
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql import source
from changefeed.source.mysql.session import Session

HOUR = 3600
NOTIFIER = "file_notifier.FileNotifier"

pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True)
class Late:
    """A pipeline with a change of two hours ago, that has committed nothing for three hours."""

    site: Site
    name: str
    alerts: Path
    """The file to which its notifier writes."""

    @property
    def notifier(self) -> dict[str, object]:
        """Its notifier, as in a pipeline's file."""
        text = "{{ run_id }} {{ changefeed.kind }}: {{ changefeed.text }}"
        return {"notifier": NOTIFIER, "arguments": {"path": str(self.alerts), "text": text}}

    def write(self, **more: object) -> None:
        """Write its file, with its notifier and the settings ``more``."""
        alerts = {"lag_seconds": HOUR, "notify": [self.notifier], **dict(more.pop("alerts", {}))}  # type: ignore[call-overload]
        settings = yaml.safe_load((self.site.pipelines / "idle.yaml").read_text())
        settings |= {"name": self.name, "tables": {"include": [f"{self.name}.*"]}, "alerts": alerts, **more}
        (self.site.pipelines / f"{self.name}.yaml").write_text(yaml.safe_dump(settings))

    def check(self) -> tuple[str, str, list[str]]:
        """The state of the task of a run of the freshness DAG, its log, and its alerts.

        Runs of the DAG's schedule may come before and after it, and send alerts too.
        """
        state, log, run_id = self.run()
        lines = self.alerts.read_text().splitlines() if self.alerts.exists() else []
        return state, log, [line.removeprefix(f"{run_id} ") for line in lines if line.startswith(f"{run_id} ")]

    def run(self) -> tuple[str, str, str]:
        """The state of the task of a run of the freshness DAG, its log, and the run's id."""
        run_id = self.site.trigger(FRESHNESS_DAG_ID)
        states = self.site.wait_for_run(FRESHNESS_DAG_ID, run_id)
        return states["check"], " ".join(self.site.log(FRESHNESS_DAG_ID, "check", run_id).split()), run_id

    def pushed(self, run_id: str) -> list[str]:
        """The keys of the XComs that the task pushed."""
        with self.site.client() as client:
            path = f"/api/v2/dags/{FRESHNESS_DAG_ID}/dagRuns/{run_id}/taskInstances/check/xcomEntries"
            return [entry["key"] for entry in client.get(path).json()["xcom_entries"]]

    def checked_at(self) -> float:
        """The metric of the last check, in Unix seconds."""
        with self.site.client() as client:
            text = client.get("/changefeed/metrics").text
        (line,) = re.findall(r"^changefeed_freshness_checked_at_seconds\{\} (\S+)$", text, re.MULTILINE)
        return float(line)


@pytest.fixture
def late(airflow_site: Site, unique_name: str, tmp_path: Path) -> Iterator[Late]:
    site, mysql = airflow_site, airflow_site.mysql
    mysql.execute(f"CREATE DATABASE {unique_name}", f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY)")
    with Session(MysqlConnection.from_uri(mysql.url)) as session:
        head, uuid = source.head(session), source.server_uuid(session)
    ago = int(time.time()) - 2 * HOUR
    mysql.execute(f"SET timestamp = {ago}", f"INSERT INTO {unique_name}.t VALUES (1)")
    checkpoint = Checkpoint(unique_name, 1, uuid, head.coordinates, "", (ago - HOUR) * 1000)
    variable = {"key": f"changefeed_checkpoint__{unique_name}", "value": checkpoint.to_text()}
    pipeline, site_text = Late(site, unique_name, tmp_path / "alerts"), site.site_file.read_text()
    site.site_file.write_text(f"{site_text}notifiers: [{NOTIFIER}]\n")
    with site.client() as client:
        assert client.post("/api/v2/variables", json=variable).status_code == 201
        pipeline.write(alerts={"lag_seconds": 24 * HOUR})  # a scheduled check finds nothing
        site.wait_for_dag(FRESHNESS_DAG_ID, f"changefeed_ingest__{unique_name}")
        yield pipeline
        (site.pipelines / f"{unique_name}.yaml").unlink()
        client.delete(f"/api/v2/variables/{variable['key']}")
    site.site_file.write_text(site_text)
    mysql.execute(f"DROP DATABASE {unique_name}")


def test_paused_pipeline_with_an_old_change_fails_the_check_and_alerts(late: Late) -> None:
    dag_id = f"changefeed_ingest__{late.name}"
    with late.site.client() as client:
        assert client.patch(f"/api/v2/dags/{dag_id}", json={"is_paused": True}).status_code == 200
    late.write(schedule="* * * * *")
    state, log, alerts = late.check()
    assert state == "failed"
    assert f"pipeline '{late.name}' is late: its last commit was at " in log
    assert f"Its DAG '{dag_id}' is paused: resume it" in log
    assert "pipeline 'idle'" not in log, "pipelines without a schedule and limits are not checked"
    assert [alert.partition(":")[0] for alert in alerts] == ["late", "lag"]
    assert "paused: resume it" in alerts[0]
    assert re.search(rf"pipeline '{late.name}' is 7,\d{{3}} seconds behind", alerts[1]), "more than its own limit"


def test_check_passes_within_the_limits_and_names_invalid_files(late: Late) -> None:
    late.write(alerts={"lag_seconds": 24 * HOUR})
    state, log, alerts = late.check()
    assert state == "success", log
    assert alerts == []
    invalid = late.site.pipelines / "invalid.yaml"
    invalid.write_text(yaml.safe_dump({"name": "invalid", "alerts": {"notify": [late.notifier]}}))
    try:
        state, log, alerts = late.check()
    finally:
        invalid.unlink()
    text = "the file 'invalid.yaml' is invalid, so its pipeline has no DAG: `changefeed check` shows the error"
    assert (state, alerts) == ("failed", [f"invalid file: {text}"])
    assert text in log
    assert f"pipeline '{late.name}'" not in log


def test_run_that_fails_before_it_checks_does_not_count_as_a_check(late: Late) -> None:
    late.write(alerts={"lag_seconds": 24 * HOUR})
    state, _, run_id = late.run()
    assert (state, late.pushed(run_id)) == ("success", [CHECKED_KEY])
    checked = late.checked_at()
    text = late.site.site_file.read_text()
    late.site.site_file.write_text("freshnes: {}\n")
    try:
        state, _, run_id = late.run()
    finally:
        late.site.site_file.write_text(text)
    assert (state, late.pushed(run_id)) == ("failed", [])
    late.write(alerts={"lag_seconds": HOUR})
    state, _, run_id = late.run()
    assert (state, late.pushed(run_id)) == ("failed", [CHECKED_KEY]), "a run that finds a late pipeline has checked all"
    assert late.checked_at() > checked
