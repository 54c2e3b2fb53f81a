"""A task of Airflow is killed, or asked to end, while its job publishes: the job ends, and the next run is not refused.

The task's process is one in which `dag.test()` runs the ingest DAG, with spark-submit or Spark Connect.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from airflow_database import create_database
from faults.feed import PROJECT, Feed

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(1200)


class Task:
    """A process that runs the feed's ingest DAG once; its job is held at the stage ``fault``."""

    def __init__(self, feed: Feed, airflow: Path, fault: str = "") -> None:
        self.held, self.log = airflow / f"held-{fault}", airflow / f"log-{fault}"
        self._reading, writing = os.pipe()  # for its results, which nobody reads
        env = {name: value for name, value in feed.env().items() if name.startswith(("AIRFLOW_CONN_", "CHANGEFEED_"))}
        env["AIRFLOW_CONN_SPARK_DEFAULT"] = "spark://local%5B2%5D"
        if fault:
            env |= {"CHANGEFEED_FAULT": fault, "CHANGEFEED_FAULT_FILE": str(self.held)}
        env = create_database(airflow, env)
        script = PROJECT / "tests" / "integration" / "dag_process.py"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(script), f"changefeed_ingest__{feed.name}", str(writing)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                text=True,
            )
        os.close(writing)
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.close()

    def wait_until_held(self) -> None:
        wait(lambda: self.held.exists() or self.process.poll() is not None, "the stage is reached", 300)
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

    def text(self) -> str:
        return self.log.read_text()


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
    task = Task(tasked, tmp_path / "airflow", "after_transaction_commit" if is_submitted else "before_seal")
    task.wait_until_held()
    assert any("jobs/ingest.py" in command for command in task.job_processes())
    assert any("java" in command for command in task.job_processes()) is is_submitted
    task.process.send_signal(number)
    wait(lambda: not task.job_processes(), "no process of the job is left", 240)
    task.process.wait(240)
    tasked.use_connect(spark_connect.url)
    output = tasked.run(spark=True)
    assert "did not end in order" not in output, "the claim was returned"
    tasked.check()
