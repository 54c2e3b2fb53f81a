"""The driver's pod and its Secret: Airflow's client with a stand-in for the API server, whose pods do not run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from kubernetes_stand_in import Cluster, merged

from changefeed.airflow import driver_pod, submit_hook
from changefeed.airflow.driver_pod import DriverPod, MissingError
from changefeed.spark.job_file import JOB_FILE

NAME = "changefeed-0123"
PASSWORD = "hunter2hunter2"
CONTAINER = "spark-kubernetes-driver"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "kubernetes", {}, has_node=False)
    cluster.start()
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER", "False")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE", str(cluster.kubeconfig()))
    monkeypatch.setattr(driver_pod, "POLL_SECONDS", 0.01)
    yield cluster
    cluster.stop()


@pytest.fixture
def pod(cluster: Cluster, tmp_path: Path) -> DriverPod:
    file = tmp_path / JOB_FILE
    file.write_text(PASSWORD)
    return DriverPod(cluster.namespace, NAME, file)


def create(cluster: Cluster, name: str = NAME) -> None:
    """Create the pod, as spark-submit does."""
    cluster.put("pods", name, {"metadata": {"name": name}, "spec": {"containers": [{"name": CONTAINER}]}})


def report(cluster: Cluster, phase: str, state: dict[str, Any] | None = None) -> None:
    """Change the pod's status, as a node does."""
    each = {"name": CONTAINER, "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state or {}}
    status = {"phase": phase, "containerStatuses": [each]}
    cluster.put("pods", NAME, merged(cluster.objects["pods", NAME], {"status": status}))


def end(cluster: Cluster, code: int) -> None:
    terminated = {"exitCode": code, "reason": "Error" if code else "Completed"}
    report(cluster, "Failed" if code else "Succeeded", {"terminated": terminated})


def test_secret_that_is_too_large_is_refused(cluster: Cluster, pod: DriverPod, tmp_path: Path) -> None:
    (tmp_path / JOB_FILE).write_text("x" * 1_000_001)
    with pytest.raises(AirflowFailException, match="expected at most 1000000 bytes"):
        pod.create_secret()
    assert cluster.all("secrets") == []


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_refusal_that_passes_leaves_secret_and_wait(cluster: Cluster, pod: DriverPod, status: int) -> None:
    pod.create_secret()
    create(cluster)
    cluster.refusals += [status] * 3
    with pytest.raises(AirflowException, match=f"found {status}"):
        pod.own_secret()
    assert len(cluster.all("secrets")) == 1
    end(cluster, 0)
    pod.wait()
    assert cluster.all("secrets") == []


def test_driver_that_ended_with_an_error_is_kept_and_named(cluster: Cluster, pod: DriverPod) -> None:
    pod.create_secret()
    create(cluster)
    end(cluster, 2)
    with pytest.raises(AirflowException, match=r"exit code 2, Error.* describe pod changefeed-0123"):
        pod.wait()
    assert pod.exit_code == 2
    assert len(cluster.all("pods")) == 1
    assert cluster.all("secrets") == []
    assert not pod.exists(), "the next attempt removes it"
    assert cluster.all("pods") == []


def test_driver_has_ended_if_only_its_sidecar_runs(cluster: Cluster, pod: DriverPod) -> None:
    create(cluster)
    report(cluster, "Running", {"terminated": {"exitCode": 2, "reason": "Error"}})
    with pytest.raises(AirflowException, match="exit code 2"):
        pod.wait()


def test_pod_that_does_not_start_is_deleted_with_the_reason(
    cluster: Cluster, pod: DriverPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_pod, "PENDING_SECONDS", 0.1)
    pod.create_secret()
    create(cluster)
    report(cluster, "Pending", {"waiting": {"reason": "ErrImagePull", "message": "no such image"}})
    with pytest.raises(AirflowException, match=r"is pending: ErrImagePull: no such image\. It was deleted"):
        pod.wait()
    assert not pod.exists()
    assert cluster.all("secrets") == []


def test_pod_of_a_lost_node_is_left_to_the_administrator(
    cluster: Cluster, pod: DriverPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_pod, "GRACE_SECONDS", 0.1)
    pod.create_secret()
    create(cluster)
    report(cluster, "Unknown")
    with pytest.raises(AirflowException, match="delete pod --force changefeed-0123"):
        pod.wait()
    assert len(cluster.all("pods")) == len(cluster.all("secrets")) == 1


def test_pod_that_is_deleted_meanwhile_is_an_error(cluster: Cluster, pod: DriverPod) -> None:
    pod.create_secret()
    with pytest.raises(MissingError, match="found 404"):
        pod.wait()
    assert cluster.all("secrets") == []


def test_pending_pod_without_its_secret_is_replaced(cluster: Cluster, pod: DriverPod) -> None:
    create(cluster)
    assert not pod.exists()
    pod.create_secret()
    create(cluster)
    assert pod.exists()
    (secret,) = cluster.all("secrets")
    assert secret["metadata"]["ownerReferences"][0]["name"] == NAME


def test_lines_of_the_log_are_complete_and_come_once(
    cluster: Cluster, pod: DriverPod, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    create(cluster)
    log = cluster.pods[NAME].log
    log.parent.mkdir()
    log.write_text("first\nhal")
    known = pod._log_new_lines(0, is_complete=False)
    log.write_text("first\nhalf\n")
    known = pod._log_new_lines(known, is_complete=False)
    log.write_text("rotated")
    pod._log_new_lines(known, is_complete=True)
    assert [record.message for record in caplog.records if record.name == driver_pod.__name__] == [
        "first", "half", "rotated",
    ]  # fmt: skip


def test_secret_is_in_no_log(cluster: Cluster, pod: DriverPod, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pod.create_secret()
    create(cluster)
    pod.own_secret()
    (secret,) = cluster.all("secrets")
    assert secret["data"][JOB_FILE] not in caplog.text
    assert PASSWORD not in caplog.text


def test_task_that_is_ended_before_the_submission_creates_no_pod(cluster: Cluster, pod: DriverPod) -> None:
    hook: Any = submit_hook.CleanSparkSubmitHook.__new__(submit_hook.CleanSparkSubmitHook)
    hook._pod, hook._is_killed, hook._submit_sp, hook._environment, hook._job_file = pod, False, None, {}, None

    def submit(*_: object) -> None:
        hook.on_kill()  # Airflow's handler returns
        create(cluster)

    hook._submit = submit
    with pytest.raises(AirflowException, match="the task was ended"):
        hook._run_in_pod(pod, "ingest.py")
    assert not pod.exists()
    assert cluster.all("pods") == cluster.all("secrets") == []


def test_ended_task_asks_for_both_deletions(cluster: Cluster, pod: DriverPod) -> None:
    hook: Any = submit_hook.CleanSparkSubmitHook.__new__(submit_hook.CleanSparkSubmitHook)
    hook._pod, hook._submit_sp = pod, None
    pod.create_secret()
    create(cluster)
    cluster.refusals.append(500)
    hook.on_kill()
    assert cluster.all("secrets") == []
