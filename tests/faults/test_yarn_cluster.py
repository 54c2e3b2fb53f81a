"""A real YARN with drivers on the cluster: exactly once after kills, and passwords only in one private file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from faults.cluster_tasks import ClusterTasks, files_with, kernel_cache, wait
from faults.feed import Feed

from changefeed.spark.job_file import JOB_FILE
from devstack.identity import ProcessId
from devstack.process import run_server
from devstack.spark_cluster import spark_home
from devstack.yarn import YarnCluster

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def yarn(session_folder: Path) -> Iterator[YarnCluster]:
    with run_server(YarnCluster(session_folder / f"yarn-{uuid4().hex[:8]}", owner=ProcessId.own())) as cluster:
        yield cluster


class Tasks(ClusterTasks):
    """Attempts of the task `ingest` with a driver on YARN."""

    def __init__(self, feed: Feed, yarn: YarnCluster) -> None:
        self.yarn = yarn
        of_containers = {"CHANGEFEED_KERNEL_CACHE": kernel_cache(), "SPARK_LOCAL_IP": "127.0.0.1"}
        conf = {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": f"file:{feed.folder / 'staging'}",
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in of_containers.items()},
            **{f"spark.executorEnv.{name}": value for name, value in of_containers.items()},
        }
        extra = {"yarn_resourcemanager_webapp_address": yarn.manager_url}
        of_task = {"HADOOP_CONF_DIR": str(yarn.conf_folder), "SPARK_LOCAL_IP": "127.0.0.1"}
        super().__init__(feed, conf, {"host": "yarn", "extra": extra}, of_task)
        self.before = len(self.applications())

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


@pytest.fixture
def tasks(keyed_feed: Feed, yarn: YarnCluster) -> Tasks:
    return Tasks(keyed_feed, yarn)


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
    assert tasks.release(second) == 0, second.text()[-4000:]
    (application,) = tasks.applications()[: len(tasks.applications()) - tasks.before]
    assert application["finalStatus"] == "SUCCEEDED"
    assert files_with(tasks.secret, tasks.feed.folder) == []
    tasks.publish_rest()


@pytest.mark.long
def test_killed_driver_repeats_nothing_and_loses_nothing(tasks: Tasks) -> None:
    run = tasks.begin()
    assert run.wait_until_held(600), run.text()[-4000:]
    (driver,) = (each for each in tasks.containers() if "ApplicationMaster" in str(each.cmdline()) and is_java(each))
    driver.kill()
    assert tasks.release(run) == 1, run.text()[-4000:]
    assert "yarn logs -applicationId" in run.text()
    wait(run, lambda: not tasks.containers())
    tasks.publish_rest()


@pytest.mark.long
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
