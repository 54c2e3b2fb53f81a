"""A real YARN with drivers on the cluster: exactly once after kills, and passwords only in one private file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from airflow_database import environment
from faults.feed import Feed, Run
from faults.test_speculation import connections_of

from changefeed.ingest.cut import cut
from changefeed.pipeline.plan import plan
from changefeed.settings.requests.run import RunBounds
from changefeed.spark.job_file import JOB_FILE
from changefeed.state.table_store import TableCheckpointStore
from devstack.identity import ProcessId
from devstack.process import run_server
from devstack.spark_cluster import spark_home
from devstack.yarn import YarnCluster

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]

OPERATOR = """\
import json, signal, sys
from pathlib import Path
from types import SimpleNamespace
from changefeed.airflow.ingest_operator import IngestOperator

def kill(*_):
    job.on_kill()
    sys.exit(9)

planned = json.loads(Path(sys.argv[2]).read_text())
task = SimpleNamespace(try_number=1, xcom_pull=lambda task_ids: planned)
job = IngestOperator(task_id="ingest", pipeline=sys.argv[1])
job.application_args = [sys.argv[1]]
signal.signal(signal.SIGTERM, kill)
job.execute({"ti": task})
"""


@pytest.fixture(scope="module")
def yarn(session_folder: Path) -> Iterator[YarnCluster]:
    with run_server(YarnCluster(session_folder / f"yarn-{uuid4().hex[:8]}", owner=ProcessId.own())) as cluster:
        yield cluster


class Tasks:
    """Attempts of the task `ingest` of a feed, with one plan, each in its own process."""

    def __init__(self, feed: Feed, yarn: YarnCluster) -> None:
        self.feed, self.yarn, self.held = feed, yarn, feed.folder / "held"
        self.plan, self.events = feed.folder / "plan.json", feed.folder / "events"
        self.events.mkdir()
        self.secret = feed.environment["CHANGEFEED_LOG_KEY"]
        feed.settings["commit_log"] = {"key": {"environment": "CHANGEFEED_LOG_KEY"}}
        self._configure()
        for _ in range(2):
            feed.write(10)
            feed.mysql.execute("FLUSH BINARY LOGS")
        connections = connections_of(feed)
        planned = plan(connections, TableCheckpointStore(feed.env()["AIRFLOW_CONN_STATE"]))
        self.plan.write_text(json.dumps(cut(connections, planned, RunBounds()).to_json()))
        self.before = len(self.applications())

    def _configure(self) -> None:
        of_containers = {
            "CHANGEFEED_KERNEL_CACHE": os.environ.get("CHANGEFEED_KERNEL_CACHE", str(Path(sys.prefix, "kernel-cache"))),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        fault = {"CHANGEFEED_FAULT": "after_transaction_commit", "CHANGEFEED_FAULT_FILE": str(self.held)}
        conf = {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": f"file:{self.feed.folder / 'staging'}",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{self.events}",
            "spark.eventLog.compress": "false",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.executor.cores": "2",
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in of_containers.items()},
            **{f"spark.executorEnv.{name}": value for name, value in {**of_containers, **fault}.items()},
        }
        self.feed.settings["spark"] = {"deploy_mode": "cluster", "conf": conf}
        self.feed.configure()

    def begin(self) -> Run:
        connection = {
            "conn_type": "spark",
            "host": "yarn",
            "extra": {"yarn_resourcemanager_webapp_address": self.yarn.manager_url},
        }
        env = environment(self.feed.folder / "airflow") | self.feed.env()
        env |= {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
            "HADOOP_CONF_DIR": str(self.yarn.conf_folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self.feed.folder),
        }
        log = self.feed.folder / f"task{next(self.feed.numbers)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", OPERATOR, self.feed.name, str(self.plan)],
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        return Run(process, log, self.held)

    def applications(self) -> list[dict[str, Any]]:
        """What YARN says about its applications, the last one first."""
        with urllib.request.urlopen(f"{self.yarn.manager_url}/ws/v1/cluster/apps", timeout=60) as answer:
            found = (json.load(answer)["apps"] or {"app": []})["app"]
        return sorted(found, key=lambda each: str(each["id"]), reverse=True)

    def containers(self) -> list[psutil.Process]:
        """The processes in containers: of YARN's programs, Java and Python."""
        folder = str(self.yarn.node_folders[0])
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(folder):
                    found.append(process)
        return found

    def publish_rest(self) -> str:
        """Run what is left on this machine, and check the topics; returns the run's output."""
        self.feed.settings["spark"] = {"master": "local[2]"}
        self.feed.configure()
        self.feed.write(5)
        text = self.feed.run()
        self.feed.check()
        return text


@pytest.fixture
def tasks(feed: Feed, yarn: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> Tasks:
    key = secrets.token_hex(32)
    monkeypatch.setenv("CHANGEFEED_LOG_KEY", key)
    feed.environment["CHANGEFEED_LOG_KEY"] = key
    return Tasks(feed, yarn)


def wait(run: Run, condition: Callable[[], object], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, run.text()[-4000:]
        time.sleep(0.1)


def release(tasks: Tasks, run: Run) -> int:
    """The exit code of a task whose application is held, again in each publishing task."""

    def ended() -> bool:
        tasks.held.unlink(missing_ok=True)
        return run.process.poll() is not None

    wait(run, ended)
    return run.result()


def files_with(secret: str, folder: Path) -> list[Path]:
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and secret.encode() in path.read_bytes():
                found.append(path)
    return found


def test_killed_task_finds_its_application_again_and_secrets_are_in_one_private_file(tasks: Tasks) -> None:
    first = tasks.begin()
    assert first.wait_until_held(600), first.text()[-4000:]

    containers = tasks.containers()
    assert {"java", "python"} <= {process.name().rstrip("0123456789.") for process in containers}
    for process in (*containers, *psutil.Process(first.process.pid).children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert tasks.secret not in str(process.cmdline())
            assert tasks.secret not in str(process.environ()), process.name()
    scripts = [path for folder in tasks.yarn.node_folders for path in folder.rglob("launch_container.sh")]
    assert scripts
    for folder in (*tasks.yarn.node_folders, tasks.events):
        assert files_with(tasks.secret, folder) == [], "the driver and the executor delete their copies"
    assert list(tasks.events.iterdir())
    (staged,) = files_with(tasks.secret, tasks.feed.folder)
    assert staged.name == JOB_FILE, "for further containers, until the application ends"
    assert staged.is_relative_to(tasks.feed.folder / "staging")
    assert not stat.S_IMODE(staged.parent.stat().st_mode) & 0o077
    assert tasks.secret not in first.text()

    first.kill()  # with spark-submit
    second = tasks.begin()
    wait(second, lambda: "of an earlier attempt still runs" in second.text())
    assert release(tasks, second) == 0, second.text()[-4000:]
    (application,) = tasks.applications()[: len(tasks.applications()) - tasks.before]
    assert application["finalStatus"] == "SUCCEEDED"
    assert files_with(tasks.secret, tasks.feed.folder) == []
    tasks.publish_rest()


def test_killed_driver_repeats_nothing_and_loses_nothing(tasks: Tasks) -> None:
    run = tasks.begin()
    assert run.wait_until_held(600), run.text()[-4000:]
    (driver,) = (each for each in tasks.containers() if "ApplicationMaster" in str(each.cmdline()) and is_java(each))
    driver.kill()
    assert release(tasks, run) == 1, run.text()[-4000:]
    assert "yarn logs -applicationId" in run.text()
    wait(run, lambda: not tasks.containers())
    tasks.publish_rest()


def test_task_that_is_marked_failed_ends_its_application(tasks: Tasks) -> None:
    run = tasks.begin()
    assert run.wait_until_held(600), run.text()[-4000:]
    assert run.process.pid
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.result() == 9, run.text()[-4000:]
    wait(run, lambda: tasks.applications()[0]["state"] == "KILLED")
    wait(run, lambda: not tasks.containers())
    assert "did not end in order" not in tasks.publish_rest(), "the driver returned its claim"


def is_java(process: psutil.Process) -> bool:
    return process.name() == "java"
