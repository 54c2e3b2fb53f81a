"""Drivers in pods of their own: what a job at a Kubernetes master with deploy mode `cluster` needs beside spark-submit.

The driver gets its job's file from a Secret, which exists until the driver has ended. Pod and Secret are named by the
task's tag, which all its attempts with the same plan share: a retry finds the driver of an earlier attempt, and two
attempts cannot have two drivers.

Source: https://spark.apache.org/docs/4.2.0/running-on-kubernetes.html
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow.providers.cncf.kubernetes.kube_client import get_kube_client
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from kubernetes.client import ApiException  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from changefeed.spark.job_file import JOB_FILE, POD_SECRET_FOLDER

_log = logging.getLogger(__name__)

LARGEST_SECRET = 1_000_000
"""Bytes. Kubernetes refuses more than 1 MiB, with the names."""

POLL_SECONDS = 2.0
ANSWER_SECONDS = 600.0
"""How long the API server may not answer while a driver runs."""

GRACE_SECONDS = 300.0
"""How long a pod that is deleted may take to end."""

_ENDED_PHASES = {"Succeeded", "Failed"}


class DriverPod:
    """The driver's pod and the Secret of one task, both called ``tag``, in ``namespace``."""

    def __init__(self, namespace: str, tag: str, job_file: Path | None) -> None:
        self._namespace, self.name, self._job_file = namespace, tag, job_file
        self._client = get_kube_client()
        self.exit_code: int | None = None
        """The driver's exit code, once `wait` has seen it."""

    def conf(self) -> dict[str, str]:
        """Spark's settings with which the driver's pod has its name and the Secret, and spark-submit does not wait."""
        return {
            "spark.kubernetes.submission.waitAppCompletion": "false",
            "spark.kubernetes.driver.pod.name": self.name,
            f"spark.kubernetes.driver.secrets.{self.name}": POD_SECRET_FOLDER,
        }

    def exists(self) -> bool:
        """Whether the pod of an earlier attempt runs, or will. One that has ended or is being deleted is removed first.

        Raises AirflowException if the API server does not say, or if the pod does not end.
        """
        deadline = time.monotonic() + GRACE_SECONDS
        while True:
            try:
                found = self._read()
            except MissingError:
                return False
            if not found.metadata.deletion_timestamp:
                if found.status.phase not in _ENDED_PHASES:
                    return True
                self.delete()
            if time.monotonic() > deadline:
                raise AirflowException(
                    f"expected pod {self.name!r} in namespace {self._namespace!r} to end within {GRACE_SECONDS:.0f} "
                    "seconds after it was deleted, found that it has not. A retry publishes what is missing."
                )
            time.sleep(POLL_SECONDS)

    def create_secret(self) -> None:
        """Put the job's file into the Secret, in place of the file of an earlier attempt.

        Raises AirflowFailException if it is too large, and AirflowException if it is not created.
        """
        assert self._job_file is not None
        content = self._job_file.read_bytes()
        if len(content) > LARGEST_SECRET:
            raise AirflowFailException(
                f"expected at most {LARGEST_SECRET} bytes of plan, settings and functions for a driver in a pod, found "
                f"{len(content)}, which no Secret holds. Nothing was published. Use deploy mode 'client'."
            )
        secret = {"metadata": {"name": self.name}, "data": {JOB_FILE: base64.b64encode(content).decode()}}
        self.delete_secret()
        self._ask("create Secret", self._client.create_namespaced_secret, body=secret)

    def own_secret(self) -> None:
        """Let Kubernetes delete the Secret with the pod, if this task cannot."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self._read().metadata.uid}
        patch = {"metadata": {"ownerReferences": [owner]}}
        self._ask("change Secret", self._client.patch_namespaced_secret, self.name, body=patch)

    def delete_secret(self) -> None:
        """Delete the Secret if it exists. Raises AirflowException."""
        with suppress(MissingError):
            self._ask("delete Secret", self._client.delete_namespaced_secret, self.name)

    def delete(self) -> None:
        """Delete the pod if it exists: its driver ends in order within the grace period. Raises AirflowException."""
        with suppress(MissingError):
            self._ask("delete pod", self._client.delete_namespaced_pod, self.name)

    def wait(self) -> None:
        """Log what the driver prints until it has ended; a pod that succeeded is deleted.

        Raises AirflowException if it ended with an error, if the pod was deleted, or if the API server does not answer.
        """
        lines, phase, answered = 0, "", time.monotonic()
        while True:
            try:
                found = self._read()
                answered = time.monotonic()
            except NoAnswerError as error:
                if time.monotonic() - answered > ANSWER_SECONDS:
                    raise
                _log.warning("waiting: %s", error)
            else:
                if found.status.phase != phase:
                    phase = str(found.status.phase)
                    _log.info("the driver's pod %s is %s", self.name, phase.lower())
                if phase != "Pending":
                    lines += self._log_new_lines(lines)
                if phase in _ENDED_PHASES:
                    break
            time.sleep(POLL_SECONDS)
        self._check_end(found)

    def _log_new_lines(self, known: int) -> int:
        """Log the lines after the first ``known`` ones; returns how many."""
        try:
            # Some versions of the client return the representation of bytes as the text.
            answer = self._client.read_namespaced_pod_log(self.name, self._namespace, _preload_content=False)
        except (ApiException, HTTPError) as error:
            _log.debug("no log of pod %s: %s", self.name, error)
            return 0
        new = answer.data.decode(errors="replace").splitlines()[known:]
        for line in new:
            _log.info("%s", line)
        return len(new)

    def _check_end(self, found: Any) -> None:
        ends = [each.state.terminated for each in found.status.container_statuses or () if each.state.terminated]
        if ends:
            self.exit_code = int(ends[0].exit_code)
        if found.status.phase == "Succeeded":
            self.delete()
            return
        why = f"exit code {self.exit_code}, {ends[0].reason}" if ends else found.status.reason or "no reason given"
        raise AirflowException(
            f"the driver's pod failed: {why}. Its log is above. The pod is kept until the next attempt: "
            f"kubectl -n {self._namespace} describe pod {self.name}"
        )

    def _read(self) -> Any:
        return self._ask("read pod", self._client.read_namespaced_pod, self.name)

    def _ask(self, what: str, call: Callable[..., Any], *names: str, **further: Any) -> Any:
        try:
            return call(*names, namespace=self._namespace, **further)
        except ApiException as error:
            kind = MissingError if error.status == 404 else NoAnswerError if error.status >= 500 else AirflowException
            raise kind(self._refusal(what, f"{error.status} {error.reason}: {error.body}")) from error
        except HTTPError as error:
            raise NoAnswerError(self._refusal(what, f"{type(error).__name__}: {error}")) from error

    def _refusal(self, what: str, found: str) -> str:
        return (
            f"expected the API server of Kubernetes to {what} {self.name!r} in namespace {self._namespace!r}, found "
            f"{found}. A retry publishes what is missing. Check [kubernetes_executor] in Airflow's configuration, and "
            "the rights of the worker's service account (docs/how-to/run-on-kubernetes.md)."
        )


class MissingError(AirflowException):
    """The API server does not know the pod or the Secret: it was deleted."""


class NoAnswerError(AirflowException):
    """The API server does not answer, or has an error of its own."""
