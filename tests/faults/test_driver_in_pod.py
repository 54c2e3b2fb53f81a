"""Drivers in pods of a stand-in for Kubernetes: exactly once after kills, and passwords only in a Secret."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from faults.cluster_tasks import ClusterTasks, files_with, kernel_cache, wait
from faults.feed import Feed
from kubernetes_stand_in import Cluster

from devstack.home import PROJECT
from devstack.port import free_port

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Cluster]:
    image = {"PYTHONPATH": str(PROJECT / "include"), "CHANGEFEED_KERNEL_CACHE": kernel_cache()}
    cluster = Cluster(tmp_path / "kubernetes", image)
    cluster.start()
    yield cluster
    cluster.stop()


class Tasks(ClusterTasks):
    """Attempts of the task `ingest` with a driver in a pod."""

    def __init__(self, feed: Feed, kubernetes: Cluster) -> None:
        self.kubernetes = kubernetes
        conf = {
            "spark.kubernetes.container.image": "changefeed",
            "spark.kubernetes.namespace": kubernetes.namespace,
            "spark.kubernetes.driver.master": kubernetes.url,
            "spark.driver.port": str(free_port()),
            "spark.driver.blockManager.port": str(free_port()),
        }
        of_task = {
            "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
            "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": str(kubernetes.kubeconfig()),
            "KUBECONFIG": str(kubernetes.kubeconfig()),
        }
        super().__init__(feed, conf, {"host": f"k8s://{kubernetes.url}"}, of_task)

    def pods(self, role: str) -> list[dict[str, Any]]:
        return self.kubernetes.all("pods", f"spark-role={role}")

    def driver(self) -> str:
        (pod,) = self.pods("driver")
        return str(pod["metadata"]["name"])

    def no_pod_runs(self) -> bool:
        return all(pod.process is None or pod.process.poll() is not None for pod in self.kubernetes.pods.values())


@pytest.fixture
def tasks(keyed_feed: Feed, kubernetes: Cluster) -> Tasks:
    return Tasks(keyed_feed, kubernetes)


def test_killed_task_finds_its_driver_again_and_passwords_are_in_one_secret(tasks: Tasks) -> None:
    first = tasks.begin()
    assert first.wait_until_held(600), first.text()[-4000:]

    assert len(tasks.pods("executor")) == 1
    (secret,) = tasks.kubernetes.all("secrets")
    assert [owner["name"] for owner in secret["metadata"]["ownerReferences"]] == [tasks.driver()]
    for pod in tasks.kubernetes.pods.values():
        assert tasks.secret not in str(pod.environment)
        assert tasks.secret not in str(pod.command)
    for kind in ("pods", "configmaps", "services"):
        assert tasks.secret not in str(tasks.kubernetes.all(kind))
    for process in psutil.Process(first.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert tasks.secret not in str(process.cmdline()) + str(process.environ())
    assert files_with(tasks.secret, tasks.events) == []
    assert list(tasks.events.iterdir())
    assert tasks.secret not in first.text()

    first.kill()
    second = tasks.begin(attempt=2)
    wait(second, lambda: "of an earlier attempt still runs" in second.text())
    assert tasks.release(second) == 0, second.text()[-4000:]
    assert "sealed window" in second.text(), "the driver's output is in the task's log"
    assert tasks.kubernetes.all("secrets") == []
    wait(second, lambda: not tasks.pods("driver"))
    tasks.publish_rest()


@pytest.mark.long
def test_killed_driver_repeats_nothing_and_loses_nothing(tasks: Tasks) -> None:
    run = tasks.begin()
    assert run.wait_until_held(600), run.text()[-4000:]
    name = tasks.driver()
    tasks.kubernetes.pods[name].kill()
    assert tasks.release(run) == 1, run.text()[-4000:]
    assert f"kubectl -n feeds describe pod {name}" in run.text()
    assert tasks.kubernetes.all("secrets") == []
    tasks.kubernetes.delete("pods", name)
    wait(run, tasks.no_pod_runs)
    tasks.publish_rest()


def test_task_that_is_marked_failed_ends_its_driver(tasks: Tasks) -> None:
    run = tasks.begin()
    assert run.wait_until_held(600), run.text()[-4000:]
    assert run.process.pid
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.result() == 9, run.text()[-4000:]
    wait(run, lambda: not tasks.kubernetes.all("pods"))
    assert tasks.kubernetes.all("secrets") == []
    assert "did not end in order" not in tasks.publish_rest(), "the driver returned its claim"
