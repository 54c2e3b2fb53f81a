"""Attacks on a running site by the URL of an archive, and an allowed archive."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow_site import Site

API = "/changefeed/api/pipelines/archived"
SECRET = "JWT-s3cr3t-of-the-site"

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def archived(airflow_site: Site) -> Iterator[Site]:
    """A pipeline, and an archive of its server below the site's root."""
    mysql = airflow_site.mysql
    mysql.execute("CREATE DATABASE archived", "CREATE TABLE archived.t (id INT PRIMARY KEY)")
    mysql.execute("FLUSH BINARY LOGS", "INSERT INTO archived.t VALUES (1), (2)")
    name = file_of(airflow_site)
    mysql.execute("FLUSH BINARY LOGS")
    (airflow_site.archives / "archived").mkdir()
    shutil.copy(mysql.data / name, airflow_site.archives / "archived")
    airflow_site.add_pipeline("archived", "archived", server_ids="65200-65231")
    yield airflow_site
    (airflow_site.pipelines / "archived.yaml").unlink(missing_ok=True)
    mysql.execute("DROP DATABASE archived")


def file_of(site: Site) -> str:
    return str(site.mysql.execute("SHOW BINARY LOG STATUS")[0][0])


def log_of(site: Site, run_id: str, task_id: str) -> str:
    """The log of a task's last attempt, with details of errors."""
    instance = f"/api/v2/dags/changefeed_backfill__archived/dagRuns/{run_id}/taskInstances/{task_id}"
    with site.client() as client:
        attempt = client.get(instance).json()["try_number"]
        return client.get(f"{instance}/logs/{attempt}", params={"full_content": True}).text


def attacks(site: Site, secret: Path) -> list[str]:
    references = json.dumps({"version": 1, "refs": {"binlog.000001": [f"file://{secret}", 4, 4]}})
    return [
        "reference::data:a:b:c;base64," + base64.b64encode(references.encode()).decode(),
        "webhdfs://127.0.0.1:1/latest",
        f"{site.archives}/../",
        f"{site.archives}/linked",
        str(secret.parent),
        f"simplecache::file://{site.archives}/archived",
    ]


def test_plan_neither_opens_nor_reveals_files_outside_the_roots(archived: Site, tmp_path: Path) -> None:
    secret = tmp_path / "binlog.000001"
    secret.write_text(SECRET)
    (archived.archives / "linked").symlink_to(tmp_path)
    try:
        with archived.client("ulf") as user:
            for url in attacks(archived, secret):
                for path in ("backfill/plan", "backfill"):
                    answer = user.post(f"{API}/{path}", json={"from_file": "binlog.000001", "archive": url})
                    assert answer.status_code == 422, (url, answer.text)
                    assert "`archives` of the site file" in answer.text
                    assert not any(part in answer.text for part in (SECRET[4:8], SECRET[:4], "Connection")), answer.text
    finally:
        (archived.archives / "linked").unlink()


def test_directly_triggered_run_is_refused_the_same_archives(archived: Site, tmp_path: Path) -> None:
    (tmp_path / "binlog.000001").write_text(SECRET)
    conf = {"from_file": "binlog.000001"}
    with archived.client() as client:
        for url in ("reference::data:a:b:c;base64,eA==", "https://u:s3cr3t@127.0.0.1/b", "https://h/b?sig=s3cr3t"):
            asked = {"logical_date": None, "conf": {**conf, "archive": url}}
            answer = client.post("/api/v2/dags/changefeed_backfill__archived/dagRuns", json=asked)
            assert answer.status_code in (400, 422), "the run is not stored"
    run_id = archived.trigger("changefeed_backfill__archived", {**conf, "archive": str(tmp_path)})
    assert archived.wait_for_run("changefeed_backfill__archived", run_id)["plan"] == "failed"
    log = log_of(archived, run_id, "plan")
    assert "may not be read through Airflow" in log
    assert SECRET[:4] not in log


@pytest.mark.long
def test_plan_of_a_withdrawn_archive_is_not_published(archived: Site) -> None:
    name = next((archived.archives / "archived").iterdir()).name
    conf = {"from_file": name, "archive": str(archived.archives / "archived")}
    allowed = archived.site_file.read_text()
    run_id = archived.trigger("changefeed_backfill__archived", conf)
    assert archived.wait_for_run("changefeed_backfill__archived", run_id)[""] == "success"
    clear = {"dry_run": False, "dag_run_id": run_id, "task_ids": ["ingest"], "only_failed": False}
    archived.site_file.write_text("archives: []\n")
    try:
        with archived.client() as client:
            answer = client.post("/api/v2/dags/changefeed_backfill__archived/clearTaskInstances", json=clear)
            assert answer.status_code == 200, answer.text
        assert archived.wait_for_run("changefeed_backfill__archived", run_id)["ingest"] == "failed"
        assert "may not be read through Airflow" in log_of(archived, run_id, "ingest")
    finally:
        archived.site_file.write_text(allowed)
