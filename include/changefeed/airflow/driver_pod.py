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
from kubernetes.client import (  # type: ignore[import-untyped]
    ApiException,
    V1DeleteOptions,
    V1Preconditions,
)
from kubernetes.config import ConfigException  # type: ignore[import-untyped]
from urllib3.exceptions import HTTPError

from changefeed.spark.job_file import JOB_FILE, POD_SECRET_FOLDER

_log = logging.getLogger(__name__)
logging.getLogger("kubernetes.client.rest").setLevel(logging.INFO)  # at DEBUG it logs answers, as that with the Secret

LARGEST_SECRET = 1_000_000
"""Bytes. Kubernetes refuses more than 1 MiB, with the names."""

POLL_SECONDS = 2.0
ANSWER_SECONDS = 600.0
"""How long the API server may not answer while a driver runs."""
PENDING_SECONDS = 600.0
"""How long a pod may take to start: a node may have to be added for it."""
GRACE_SECONDS = 300.0
"""How long a pod that is deleted may take to end, and a lost node to come back."""

_CONTAINER = "spark-kubernetes-driver"
_ENDED_PHASES = {"Succeeded", "Failed"}
_PASSING = {0, 401, 403, 408, 429}
"""Statuses of refusals that may pass: a token is renewed, a limit is over. 0 is an error of TLS."""


class DriverPod:
    """The driver's pod and the Secret of one task, both called ``tag``, in ``namespace``."""

    def __init__(self, namespace: str, tag: str, job_file: Path | None) -> None:
        self._namespace, self.name, self._job_file = namespace, tag, job_file
        try:
            self._client = get_kube_client()
        except ConfigException as error:
            raise AirflowFailException(
                f"expected access to Kubernetes by [kubernetes_executor] of Airflow's configuration, found {error}. "
                "Nothing was published. Set in_cluster, or config_file and cluster_context."
            ) from error
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
                if found.status.phase not in _ENDED_PHASES and self._can_start(found):
                    return True
                self.delete(found.metadata.uid)
            if time.monotonic() > deadline:
                raise AirflowException(self._lost(found))
            time.sleep(POLL_SECONDS)

    def _can_start(self, found: Any) -> bool:
        """Whether the pod has started, or its Secret exists, which then belongs to it."""
        try:
            self.own_secret()
        except MissingError:
            return bool(found.status.phase != "Pending")
        return True

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

    def delete_secret(self, seconds: float | None = None) -> None:
        """Delete the Secret if it exists. Raises AirflowException, also after ``seconds`` without an answer."""
        with suppress(MissingError):
            self._ask("delete Secret", self._client.delete_namespaced_secret, self.name, _request_timeout=seconds)

    def delete(self, uid: str | None = None, seconds: float | None = None) -> None:
        """Delete the pod if it exists, and, with ``uid``, only that one: its driver ends in order within the grace
        period. Raises AirflowException, also after ``seconds`` without an answer."""
        options = V1DeleteOptions(preconditions=V1Preconditions(uid=uid)) if uid else None
        with suppress(MissingError):
            self._ask(
                "delete pod", self._client.delete_namespaced_pod, self.name, body=options, _request_timeout=seconds
            )

    def wait(self) -> None:
        """Log what the driver prints until it has ended, and delete the Secret; a pod that succeeded is deleted.

        Raises AirflowException if it ended with an error, if the pod does not start or was deleted, if its node is
        lost, or if the API server does not answer.
        """
        lines, phase = 0, ""
        answered = changed = time.monotonic()
        while True:
            try:
                found = self._read()
                answered = time.monotonic()
            except MissingError:
                self._clear(self.delete_secret)
                raise
            except NoAnswerError as error:
                if time.monotonic() - answered > ANSWER_SECONDS:
                    raise
                _log.warning("waiting: %s", error)
                time.sleep(POLL_SECONDS)
                continue
            now = "Deleted" if found.metadata.deletion_timestamp else str(found.status.phase)
            if now != phase:
                phase, changed = now, time.monotonic()
                _log.info("the driver's pod %s is %s%s", self.name, phase.lower(), _why_pending(found))
            has_ended = found.status.phase in _ENDED_PHASES or _terminated(found) is not None
            if phase != "Pending":
                lines = self._log_new_lines(lines, is_complete=has_ended)
            if has_ended:
                break
            self._check_progress(found, phase, time.monotonic() - changed)
            time.sleep(POLL_SECONDS)
        self._clear(self.delete_secret)
        self._check_end(found)

    def _check_progress(self, found: Any, phase: str, seconds: float) -> None:
        """Raise AirflowException if the pod has been pending, unknown or deleted for too long."""
        if phase == "Pending" and seconds > PENDING_SECONDS:
            self._clear(self.delete)
            self._clear(self.delete_secret)
            raise AirflowException(
                f"expected the driver's pod {self.name!r} to start within {PENDING_SECONDS:.0f} seconds, found that it "
                f"is pending{_why_pending(found)}. It was deleted, and published nothing. Check `spark.conf` of the "
                "pipeline and the nodes of the cluster; a retry creates it again."
            )
        if phase in {"Unknown", "Deleted"} and seconds > GRACE_SECONDS:
            raise AirflowException(self._lost(found))

    def _lost(self, found: Any) -> str:
        return (
            f"expected pod {self.name!r} in namespace {self._namespace!r} to end within {GRACE_SECONDS:.0f} seconds "
            f"after it was deleted or its node was lost, found it on node {found.spec.node_name!r}. No other driver "
            "was started, as this one may still publish. When the node is surely off, run: "
            f"kubectl -n {self._namespace} delete pod --force {self.name}"
        )

    def _log_new_lines(self, known: int, *, is_complete: bool) -> int:
        """Log the lines after the first ``known`` ones; returns how many are known then. The last line of a driver that
        has not ended may not be complete. A log that got shorter was rotated."""
        try:
            # Some versions of the client return the representation of bytes as the text.
            answer = self._client.read_namespaced_pod_log(
                self.name, self._namespace, container=_CONTAINER, _preload_content=False
            )
        except (ApiException, HTTPError) as error:
            _log.debug("no log of pod %s: %s", self.name, error)
            return known
        lines = answer.data.decode(errors="replace").splitlines(keepends=True)
        if lines and not is_complete and not lines[-1].endswith("\n"):
            lines.pop()
        for line in lines[known if len(lines) >= known else 0 :]:
            _log.info("%s", line.rstrip("\n"))
        return len(lines)

    def _check_end(self, found: Any) -> None:
        end = _terminated(found)
        if end is not None:
            self.exit_code = int(end.exit_code)
        if self.exit_code == 0 or (end is None and found.status.phase == "Succeeded"):
            self._clear(self.delete)
            return
        why = f"exit code {self.exit_code}, {end.reason}" if end else found.status.reason or "no reason given"
        raise AirflowException(
            f"the driver's pod failed: {why}. Its log is above. The pod is kept until the next attempt: "
            f"kubectl -n {self._namespace} describe pod {self.name}"
        )

    def _clear(self, delete: Callable[[], None]) -> None:
        """Call ``delete``. The next attempt clears up what it cannot: that is no error of this one."""
        try:
            delete()
        except AirflowException as error:
            _log.warning("%s", error)

    def _read(self) -> Any:
        return self._ask("read pod", self._client.read_namespaced_pod, self.name)

    def _ask(self, what: str, call: Callable[..., Any], *names: str, **further: Any) -> Any:
        try:
            return call(*names, namespace=self._namespace, **further)
        except ApiException as error:
            may_pass = error.status in _PASSING or error.status >= 500
            kind = MissingError if error.status == 404 else NoAnswerError if may_pass else AirflowException
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
    """The API server does not answer, has an error of its own, or refuses a request, as for an expired token."""


def _terminated(found: Any) -> Any:
    """How the driver's container ended; None if it has not, or is not known. Other containers may be sidecars."""
    for each in found.status.container_statuses or ():
        if each.name == _CONTAINER:
            return each.state.terminated
    return None


def _why_pending(found: Any) -> str:
    """Why the pod has not started, as `: ErrImagePull: …`; empty if Kubernetes does not say."""
    reasons = [each.state.waiting for each in found.status.container_statuses or () if each.state.waiting]
    reasons += [each for each in found.status.conditions or () if each.type == "PodScheduled" and each.status != "True"]
    return "".join(f": {each.reason}: {each.message}" for each in reasons[:1] if each.reason)
