"""A real standalone cluster of two hosts: a run publishes as on a local master, and its parts are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow_database import environment
from faults.feed import NOTHING_NEW, Feed, Run
from faults.test_speculation import window_of
from long_form import long

from devstack.identity import ProcessId, family
from devstack.spark_cluster import SparkCluster

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]


@pytest.fixture
def cluster_feed(feed: Feed, spark_cluster: SparkCluster) -> Feed:
    feed.environment["SPARK_CONF_DIR"] = str(spark_cluster.conf_folder)
    use_cluster(feed, spark_cluster)
    return feed


def use_cluster(feed: Feed, cluster: SparkCluster, **settings: Any) -> None:
    conf = {"spark.executor.memory": "512m"} | settings.pop("conf", {})
    feed.settings["spark"] = {"master": cluster.url, "conf": conf, **settings}
    feed.configure()


def write_slices(feed: Feed) -> None:
    """Three files are three slices: decoded in parallel, then shuffled."""
    for _ in range(3):
        feed.write(15)
        feed.mysql.execute("FLUSH BINARY LOGS")


def hold(feed: Feed, cluster: SparkCluster, stage: str) -> Run:
    """Begin a run whose executors pause at ``stage``."""
    held = feed.folder / f"held{cluster.port}"
    fault = {"CHANGEFEED_FAULT": stage, "CHANGEFEED_FAULT_FILE": str(held)}
    use_cluster(feed, cluster, conf={f"spark.executorEnv.{name}": value for name, value in fault.items()})
    started = feed.begin_command("", "run", feed.name)
    run = Run(started.process, started.log, held)
    assert run.wait_until_held(240), run.text()
    use_cluster(feed, cluster)
    return run


def executors(cluster: SparkCluster) -> Iterator[psutil.Process]:
    """The JVMs of the executors, children of the workers."""
    for worker in cluster.workers:
        assert worker.pid is not None
        process = ProcessId.of(worker.pid)
        assert process is not None
        for member in family(process):
            child = psutil.Process(member.pid)
            if "java" in child.name():
                yield child


def result_of(run: Run, seconds: float = 300) -> int:
    """The exit code of a run whose tasks are repeated, and pause again."""
    deadline = time.monotonic() + seconds
    while run.process.poll() is None:
        run.file.unlink(missing_ok=True)
        assert time.monotonic() < deadline, run.text()[-4000:]
        time.sleep(0.1)
    return run.result()


def publish_rest(feed: Feed) -> None:
    feed.write(5)
    run = feed.begin_command("", "run", feed.name)
    assert run.result(300) in (0, NOTHING_NEW), run.text()
    feed.check()


def test_a_run_on_a_cluster_publishes_as_on_a_local_master(cluster_feed: Feed, spark_cluster: SparkCluster) -> None:
    write_slices(cluster_feed)
    driver = "127.0.0.9"
    cluster_feed.environment |= {"SPARK_LOCAL_IP": driver, "SPARK_LOCAL_HOSTNAME": driver}
    run = cluster_feed.begin_command("", "run", cluster_feed.name)
    assert run.result(300) == 0, run.text()
    cluster_feed.check()
    assert any(f"@{driver}:" in worker.log_text() for worker in spark_cluster.workers), (
        "executors reach the driver there"
    )


OPERATOR = """\
import json, sys
from types import SimpleNamespace
from changefeed.airflow.ingest_operator import JobOperator

task = SimpleNamespace(try_number=1, xcom_pull=lambda task_ids: json.loads(sys.argv[2]))
job = JobOperator(task_id="ingest", pipeline=sys.argv[1], job="ingest.py", arguments=[sys.argv[1]])
job.execute({"ti": task})
"""


def test_the_dags_task_publishes_on_a_cluster_in_client_mode(cluster_feed: Feed, spark_cluster: SparkCluster) -> None:
    write_slices(cluster_feed)
    connection = {"conn_type": "spark", "host": spark_cluster.url, "extra": {"deploy-mode": "client"}}
    env = environment(cluster_feed.folder / "airflow") | cluster_feed.env()
    del env["SPARK_LOCAL_IP"]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            OPERATOR,
            cluster_feed.name,
            json.dumps({"windows": [window_of(cluster_feed).to_json()]}),
        ],
        env=env | {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    publish_rest(cluster_feed)


@pytest.mark.parametrize("what", ["executor", *long("driver", "worker")])
def test_a_part_of_the_cluster_killed_while_publishing_repeats_nothing_and_loses_nothing(
    cluster_feed: Feed, spark_cluster: SparkCluster, what: str
) -> None:
    write_slices(cluster_feed)
    run = hold(cluster_feed, spark_cluster, "after_transaction_commit")
    if what == "driver":
        run.kill()
    elif what == "executor":
        for executor in executors(spark_cluster):
            executor.kill()
        result_of(run)
    else:
        worker = spark_cluster.workers[0]
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        result_of(run)
        spark_cluster.start_worker(worker)
    run.file.unlink(missing_ok=True)
    publish_rest(cluster_feed)


def test_a_python_of_workers_without_the_package_ends_the_run_in_a_sentence(
    cluster_feed: Feed, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    use_cluster(cluster_feed, spark_cluster, conf={"spark.pyspark.python": str(python)})
    cluster_feed.write(5)
    run = cluster_feed.begin_command("", "run", cluster_feed.name)
    assert run.result(300) == 1, run.text()
    assert "SettingsError: expected the Python workers of Spark to import 'pyspark', found no such module" in run.text()
    use_cluster(cluster_feed, spark_cluster)
    publish_rest(cluster_feed)


def test_a_cluster_without_free_executors_ends_the_run_in_a_sentence(
    cluster_feed: Feed, spark_cluster: SparkCluster
) -> None:
    use_cluster(cluster_feed, spark_cluster, conf={"spark.executor.memory": "4g"}, executor_seconds=5)
    cluster_feed.write(5)
    run = cluster_feed.begin_command("", "run", cluster_feed.name)
    assert run.result(300) == 1, run.text()
    assert f"expected an executor of {spark_cluster.url}, found none for 5 s" in run.text()
