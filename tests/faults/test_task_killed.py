"""A task of Airflow is killed, or asked to end, while its job works: the job ends, and the next run is not refused.

The task's process is one in which `dag.test()` runs the ingest DAG, with spark-submit or Spark Connect.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow_database import create_database
from faults.feed import Feed
from integration.dag_runner import DagRunner

from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(1200)


class Task(DagRunner):
    """A process that runs a DAG of the feed once; its job is held at the stage ``fault``."""

    def __init__(self, feed: Feed, folder: Path, fault: str, job: str = "ingest", conf: dict[str, Any] | None = None):
        self.held = folder / "held"
        env = {name: value for name, value in feed.env().items() if name.startswith(("AIRFLOW_CONN_", "CHANGEFEED_"))}
        env["AIRFLOW_CONN_SPARK_DEFAULT"] = "spark://local%5B2%5D"
        env |= {"CHANGEFEED_FAULT": fault, "CHANGEFEED_FAULT_FILE": str(self.held)}
        env = create_database(folder / "airflow", env)
        super().__init__(f"changefeed_{job}__{feed.name}", env, folder / "dag.log")
        self.begin(f"run {json.dumps(conf or {})}")
        self.end_commands()

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        wait(lambda: is_reached() or self.process.poll() is not None, "the stage is reached", 300)
        assert self.process.poll() is None, self.text()

    def job_processes(self) -> list[str]:
        """The command lines of the job's living processes: those with its environment, but the task's own."""
        variable = f"CHANGEFEED_FAULT_FILE={self.held}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and variable in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return [command for command in found if "dag_process.py" not in command]

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the task, and wait until its job has ended."""
        self.process.send_signal(number)
        wait(lambda: not self.job_processes(), "no process of the job is left", 240)
        self.stop()


def wait(condition: Callable[[], bool], what: str, seconds: float) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"expected within {seconds:g} seconds: {what}"
        time.sleep(0.05)
    print(f"{what} after {time.monotonic() - begun:.1f} s")


@pytest.fixture(params=["connect", pytest.param("submit", marks=pytest.mark.extended)])
def tasked(request: pytest.FixtureRequest, feed: Feed, spark_connect: SparkConnectServer) -> Iterator[Feed]:
    """A feed with rows to publish, whose DAG uses spark-submit or Spark Connect."""
    feed.settings |= {"schedule": None, "retries": 0}
    if request.param == "connect":
        feed.use_connect(spark_connect.url)
    feed.configure()
    feed.write()
    return feed


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.extended)],
    ids=["killed", "asked"],
)
def test_job_ends_with_its_task_and_the_next_run_publishes_the_rest(
    tasked: Feed, spark_connect: SparkConnectServer, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGTERM is what Airflow sends on *mark failed* and *clear*."""
    is_submitted = "connect" not in tasked.settings.get("spark", {})
    task = Task(tasked, tmp_path, "after_transaction_commit" if is_submitted else "before_seal")
    task.wait_until(task.held.exists)
    assert any("jobs/ingest.py" in command for command in task.job_processes())
    assert any("java" in command for command in task.job_processes()) is is_submitted
    task.end(number)
    tasked.use_connect(spark_connect.url)
    output = tasked.run(spark=True)
    assert "did not end in order" not in output, "the claim was returned"
    tasked.check()


@pytest.mark.extended
@pytest.mark.parametrize(("job", "fault"), [("backfill", "before_seal"), ("snapshot", "after_take_over")])
def test_job_beside_the_windows_ends_with_its_task(
    feed: Feed, spark_connect: SparkConnectServer, tmp_path: Path, job: str, fault: str
) -> None:
    conf = {"from_file": feed.mysql.head().partition(":")[0]} if job == "backfill" else {}
    publish(feed, spark_connect)
    task = Task(feed, tmp_path, fault, job, conf)
    task.wait_until(task.held.exists)
    assert any(f"jobs/{job}.py" in command for command in task.job_processes())
    task.end(signal.SIGKILL)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("job", "lock"),
    [("verify", "LOCK TABLES `{name}`.accounts WRITE"), ("replicate", "FLUSH TABLES WITH READ LOCK")],
    ids=["verify", "replicate"],
)
def test_job_that_waits_for_a_server_ends_with_its_task(
    feed: Feed, spark_connect: SparkConnectServer, mysql_follower: MysqlServer, tmp_path: Path, job: str, lock: str
) -> None:
    """The comparison waits for the source's rows, the replication for its first write to the follower."""
    server = feed.mysql if job == "verify" else mysql_follower
    feed.connections["COPY"] = mysql_follower.root_url
    feed.settings |= {"followers": [{"connection": "copy"}], "values": {"temporal": "iso"}}
    publish(feed, spark_connect)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(lock.format(name=feed.name))
        task = Task(feed, tmp_path, "", job)
        task.wait_until(lambda: is_waited_for(cursor))
        assert any(f"jobs/{job}.py" in command for command in task.job_processes())
        task.end(signal.SIGKILL)


def publish(feed: Feed, spark: SparkConnectServer) -> None:
    """Publish rows; later jobs of the feed run on the Connect server too."""
    feed.settings |= {"schedule": None, "retries": 0}
    feed.use_connect(spark.url)
    feed.write(3)
    feed.run()


def is_waited_for(cursor: Any) -> bool:
    """Whether a session of the server waits for a lock."""
    cursor.execute("SHOW PROCESSLIST")
    return any(str(row[6]).startswith("Waiting for") and "lock" in row[6] for row in cursor.fetchall())
