"""Deferrable tasks of a live Airflow on a real YARN: the driver works while its task holds no worker slot."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from airflow_site import Site, site, wait_until
from integration.kafka_pipeline import committed, ids

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_cluster import spark_home
from devstack.yarn import YarnCluster

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]

DAG = "changefeed_ingest__deferred"


@dataclass
class Deferred:
    """A deferrable pipeline, whose drivers create the file ``held`` before a seal, and wait until it is removed."""

    site: Site
    yarn: YarnCluster
    held: Path

    def begin(self) -> str:
        """Insert a row and start a run; returns its id when its driver is held and its task is deferred."""
        self.site.mysql.execute("INSERT INTO deferred.t VALUES ()")
        run_id = self.site.trigger(DAG)
        wait_until(lambda: self.held.exists() or self.state(run_id) in ("failed", "success"), "the driver works", 300)
        wait_until(lambda: self.state(run_id) in ("deferred", "failed", "success"), "the task is deferred", 240)
        assert self.state(run_id) == "deferred", self.site.log(DAG, "ingest", run_id)
        return run_id

    def state(self, run_id: str) -> str | None:
        with self.site.client() as client:
            found = client.get(f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/ingest").json()
        return cast("str | None", found["state"])

    def applications(self) -> list[str]:
        """The states of YARN's applications, in their order."""
        with urllib.request.urlopen(f"{self.yarn.manager_url}/ws/v1/cluster/apps", timeout=60) as answer:
            found = (json.load(answer)["apps"] or {"app": []})["app"]
        return [each["state"] for each in sorted(found, key=lambda each: str(each["id"]))]

    def finish(self, run_id: str) -> dict[str, str]:
        def has_ended() -> bool:
            self.held.unlink(missing_ok=True)
            return self.state(run_id) in ("failed", "success")

        wait_until(has_ended, f"run {run_id} ends", 600)
        return self.site.wait_for_run(DAG, run_id)


@pytest.fixture(scope="module")
def deferred(
    tmp_path_factory: pytest.TempPathFactory, mysql_server: MysqlServer, kafka_broker: KafkaBroker
) -> Iterator[Deferred]:
    folder = tmp_path_factory.mktemp("deferred")
    mysql_server.execute("CREATE DATABASE deferred", "CREATE TABLE deferred.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    with run_server(YarnCluster(folder / "yarn", owner=ProcessId.own())) as yarn:
        connection = {
            "conn_type": "spark",
            "host": "yarn",
            "extra": {"yarn_resourcemanager_webapp_address": yarn.manager_url},
        }
        settings = {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
            "HADOOP_CONF_DIR": str(yarn.conf_folder),
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
        }
        with site(folder / "site", mysql_server, kafka_broker, cast("Any", None), settings) as airflow:
            spark = {"deploy_mode": "cluster", "deferrable": True, "conf": conf(folder)}
            airflow.write_pipeline("deferred", "deferred", f"spark: {json.dumps(spark)}\n", "65400-65431", submit=True)
            airflow.wait_for_dag(DAG)
            assert airflow.run(DAG)["ingest"] == "skipped"
            yield Deferred(airflow, yarn, folder / "held")
    mysql_server.execute("DROP DATABASE deferred")


def conf(folder: Path) -> dict[str, str]:
    of_containers = {
        "CHANGEFEED_KERNEL_CACHE": os.environ.get("CHANGEFEED_KERNEL_CACHE", str(Path(sys.prefix, "kernel-cache"))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    fault = {"CHANGEFEED_FAULT": "before_seal", "CHANGEFEED_FAULT_FILE": str(folder / "held")}
    return {
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
        "spark.yarn.stagingDir": f"file:{folder / 'staging'}",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in {**of_containers, **fault}.items()},
        **{f"spark.executorEnv.{name}": value for name, value in of_containers.items()},
    }


def test_deferred_task_publishes_although_the_triggerer_was_killed(deferred: Deferred) -> None:
    run_id = deferred.begin()
    deferred.site.airflow.restart_killed("triggerer")
    states = deferred.finish(run_id)
    log = deferred.site.log(DAG, "ingest", run_id)
    assert states == {"": "success", "plan": "success", "ingest": "success", "commit": "success"}, log
    assert deferred.applications() == ["FINISHED"]
    assert len(ids(committed(deferred.site.kafka.bootstrap, "deferred.t"))) == 1


def test_deferred_task_that_is_marked_failed_ends_its_application(deferred: Deferred) -> None:
    run_id = deferred.begin()
    with deferred.site.client() as client:
        path = f"/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/ingest"
        assert client.patch(path, json={"new_state": "failed"}).status_code == 200
    wait_until(lambda: deferred.applications()[-1] == "KILLED", "YARN ends the application", 300)
