"""A live Airflow ends a task, or its worker is killed, while the job publishes: the job ends and repeats nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from airflow_site import Site, site, wait_until
from integration.kafka_pipeline import committed, ids

from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

INGEST = "changefeed_ingest__ended"

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]


@dataclass
class HeldSite:
    """An Airflow whose jobs create the file ``held`` before they seal a window, and wait until it is removed."""

    site: Site
    held: Path

    def hold(self) -> tuple[str, psutil.Process]:
        """Start a run; returns its id and the driver, which is held."""
        run_id = self.site.trigger(INGEST)
        wait_until(self.held.exists, "the job is before the seal", 300)
        (driver,) = [process for process in psutil.process_iter() if self._is_driver(process)]
        return run_id, driver

    def _is_driver(self, process: psutil.Process) -> bool:
        try:
            runs_job = any(argument.endswith("jobs/ingest.py") for argument in process.cmdline())
            return runs_job and process.environ().get("CHANGEFEED_FAULT_FILE") == str(self.held)
        except psutil.Error:
            return False

    def go_on(self) -> bool:
        """Release a job that is held now, or in a moment."""
        self.held.unlink(missing_ok=True)
        return True

    def state(self, run_id: str) -> str:
        with self.site.client() as client:
            path = f"/api/v2/dags/{INGEST}/dagRuns/{run_id}/taskInstances/ingest"
            return str(client.get(path).json()["state"])


@pytest.fixture
def ended(
    tmp_path: Path, source_mysql: MysqlServer, kafka_broker: KafkaBroker, spark_connect: SparkConnectServer
) -> Iterator[HeldSite]:
    source_mysql.execute("CREATE DATABASE ended", "CREATE TABLE ended.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    held = tmp_path / "held"
    settings = {
        "CHANGEFEED_FAULT": "before_seal",
        "CHANGEFEED_FAULT_FILE": str(held),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "1",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    }
    with site(tmp_path / "site", source_mysql, kafka_broker, spark_connect, settings) as airflow:
        airflow.add_pipeline("ended", "ended", server_ids="65500-65531")
        assert airflow.run(INGEST)["ingest"] == "skipped"
        yield HeldSite(airflow, held)
    source_mysql.execute("DROP DATABASE ended")


def test_job_ends_when_its_task_is_marked_failed_or_its_worker_is_killed(ended: HeldSite) -> None:
    """One test, because Airflow takes long to start."""
    mysql = ended.site.mysql
    mysql.execute("INSERT INTO ended.t VALUES (), ()")
    run_id, driver = ended.hold()
    with ended.site.client() as client:
        path = f"/api/v2/dags/{INGEST}/dagRuns/{run_id}/taskInstances/ingest"
        assert client.patch(path, json={"new_state": "failed"}).status_code == 200
    driver.wait(240)
    ended.go_on()

    mysql.execute("INSERT INTO ended.t VALUES ()")
    run_id, driver = ended.hold()
    task = driver.parent()
    assert task is not None
    supervisor = task.ppid()
    os.kill(supervisor, signal.SIGKILL)
    psutil.wait_procs([driver, task], timeout=240)
    assert not driver.is_running()
    assert not task.is_running()
    ended.go_on()

    run_id = ended.site.trigger(INGEST)
    wait_until(lambda: ended.go_on() and ended.state(run_id) in ("success", "failed"), "the next run ends", 600)
    assert ended.state(run_id) == "success", ended.site.log(INGEST, "ingest", run_id)
    assert "did not end in order" not in ended.site.log(INGEST, "ingest", run_id)
    published = ids(committed(ended.site.kafka.bootstrap, "ended.t"))
    assert len(published) == len(set(published)) == 3
