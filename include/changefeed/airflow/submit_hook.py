"""Runs spark-submit for a job: with a driver on this machine, or with one on YARN's cluster or in a pod of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from subprocess import TimeoutExpired
from typing import IO, TYPE_CHECKING, Any

import requests
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from changefeed.airflow.task_processes import task_variables
from changefeed.spark.class_archive import with_class_archive
from changefeed.spark.conf import JOB_CONF, PRIVATE_UMASK, environment_at, job_conf, properties
from changefeed.spark.job_file import IMAGE_JOBS_FOLDER, JOB_FILE, POD_SECRET_FOLDER

if TYPE_CHECKING:
    from changefeed.airflow.driver_pod import DriverPod

KILL_SECONDS = 3.0
"""How long spark-submit may take to end in order. Airflow kills a task 5 seconds after it asked it to end."""

_YARN_CONF = {"spark.yarn.maxAppAttempts": "1"}
"""Defaults of an application on YARN: Airflow repeats a failed job, with the task's delays and alerts."""

_ACTIVE_STATES = {"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"}


class CleanSparkSubmitHook(SparkSubmitHook):
    """Runs spark-submit with exactly ``environment``, without Airflow's own variables.

    The process gets the environment directly. `env_vars` would be added to Airflow's own environment, and on YARN and
    Kubernetes would be visible on the command line.
    """

    def __init__(
        self,
        environment: dict[str, str],
        conf_file: IO[str],
        *,
        defaults: Mapping[str, str] = JOB_CONF,
        job_file: Path | None = None,
        tag: str = "",
        waits: bool = True,
        **settings: Any,
    ) -> None:
        """``job_file`` becomes the job's first argument. ``tag`` identifies a driver on a cluster: a second one with
        the same tag is not submitted while the first runs. Without ``waits``, `submit` does not wait for the end of an
        application on YARN: `deferred` is its id.

        Raises AirflowFailException for a Spark connection with which no job can work.
        """
        try:
            super().__init__(properties_file=conf_file.name, **settings)
        except NameError as error:  # the provider does not import what it needs for k8s://
            raise AirflowFailException(
                f"Airflow's Spark provider does not accept the master of connection {settings['conn_id']!r}: {error}. "
                "For Kubernetes it needs the package apache-airflow-providers-cncf-kubernetes, found none. Nothing was "
                "published. Install changefeed[kubernetes]."
            ) from error
        self._master, self._tag, self._job_file = str(self._connection["master"]), tag, job_file
        self._waits, self._is_killed = waits, False
        self.deferred: str | None = None
        self._environment = environment | environment_at(self._master)
        conf, first = dict(self._conf), str(job_file)
        self._pod: DriverPod | None = None
        if self.is_elsewhere and self._is_kubernetes:
            self._pod, first = self._driver_pod(), f"{POD_SECRET_FOLDER}/{JOB_FILE}"
            conf |= self._pod.conf()
        elif self.is_elsewhere:
            self._check_cluster_mode()
            tags = ",".join(filter(None, (conf.get("spark.yarn.tags"), tag)))
            conf |= {"spark.yarn.tags": tags, self._YARN_WAIT_APP_COMPLETION_CONF: str(waits).lower()}
            defaults = {**defaults, **_YARN_CONF}
            if job_file is not None:
                self._files, first = str(job_file), JOB_FILE
        else:
            defaults = with_class_archive(defaults)
        if job_file is not None:
            self._application_args = [first, *(self._application_args or ())]
        conf_file.write(properties(job_conf(conf, self._master, defaults)))
        conf_file.flush()

    def _driver_pod(self) -> DriverPod:
        from changefeed.airflow.driver_pod import DriverPod

        namespace = self._connection["namespace"]
        if not namespace:
            raise AirflowFailException(
                f"expected `namespace` in the extra of Spark connection {self._conn_id!r}, or "
                "spark.kubernetes.namespace in `spark.conf` of the pipeline, found none: with deploy mode 'cluster' a "
                "retry looks there for a driver that still runs. Nothing was published. Set it."
            )
        if not self._waits:
            raise AirflowFailException(
                f"expected `deferrable: false` in `spark` of the pipeline, as the master of Spark connection "
                f"{self._conn_id!r} is {self._master!r}, found true: the triggerer waits only for drivers on YARN. "
                "Nothing was published. Remove `deferrable`."
            )
        return DriverPod(str(namespace), self._tag, self._job_file)

    def _check_cluster_mode(self) -> None:
        if self._master != "yarn":
            raise AirflowFailException(
                f"expected deploy mode 'client' for the master {self._master!r} of Spark connection "
                f"{self._conn_id!r}, found 'cluster', which does not exist for Python on such a master. Nothing was "
                "published. Set deploy_mode in `spark` of the pipeline, or deploy-mode in the connection, to client."
            )
        try:
            self._get_yarn_rm_base_url()
        except ValueError:
            raise AirflowFailException(
                f"expected `{self._YARN_RM_WEBAPP_ADDRESS_EXTRA_KEY}` in the extra of Spark connection "
                f"{self._conn_id!r}, found none: with deploy mode 'cluster' a retry looks there for an application "
                "that still runs. Nothing was published. Set it, for example to http://resourcemanager:8088."
            ) from None

    def _build_spark_common_args(self) -> list[str]:
        """Airflow's arguments without the Spark settings, which are passed in a file: command lines are visible to all
        users of the machine and in the task's log. spark-defaults.conf still applies."""
        arguments = super()._build_spark_common_args()
        for name, value in self._conf.items():
            at = arguments.index(f"{name}={value}")
            del arguments[at - 1 : at + 1]
        return [*arguments, "--load-spark-defaults"]

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run ``application``, and wait until it ends. Raises AirflowException if it ended with an error."""
        if self._pod is not None:
            self._run_in_pod(self._pod, application)
            return None
        if self.is_elsewhere:
            self._run_on_yarn(application)
            return None
        return self._submit(application, self._environment | task_variables(), **kwargs)

    def _submit(self, application: str, environment: dict[str, str], **kwargs: Any) -> str | None:
        """Run spark-submit. Only this user can read the files that it creates."""
        return super().submit(application, **kwargs, env=environment, umask=PRIVATE_UMASK)

    def _run_in_pod(self, pod: DriverPod, application: str) -> None:
        """Submit ``application`` with a driver in ``pod``, unless that of an earlier attempt runs; wait for its end."""
        if pod.exists():
            self.log.info("pod %s of an earlier attempt still runs: waiting", pod.name)
        else:
            self._submit_pod(pod, application)
        self._delete_job_file()
        pod.wait()

    def _submit_pod(self, pod: DriverPod, application: str) -> None:
        """Create the Secret and the pod. Raises AirflowException also if `on_kill` was called meanwhile, after which
        Airflow lets the task go on."""
        self._check_not_killed()
        pod.create_secret()
        try:
            self._check_not_killed()
            self._spark_exit_code = 0  # else Airflow expects the driver's in spark-submit's output
            self._submit(f"local://{IMAGE_JOBS_FOLDER}/{Path(application).name}", self._environment)
            self._check_not_killed()
            pod.own_secret()
        except AirflowException:
            if self._is_killed:
                pod.delete()
            if not pod.exists():  # of another attempt at the same moment, which needs the Secret
                pod.delete_secret()
            raise

    def _check_not_killed(self) -> None:
        if self._is_killed:
            raise AirflowException("the task was ended before the driver's pod was created. A retry publishes.")

    def _run_on_yarn(self, application: str) -> None:
        """Submit ``application`` to YARN, unless one with the same tag runs; and wait for its end if the hook waits.

        Raises AirflowException if it cannot be submitted, if YARN does not answer, or if it ended with an error; the
        message has YARN's reason.
        """
        self._yarn_application_id = next(iter(self._running_applications()), None)
        if self._yarn_application_id is None:
            try:
                self._submit(application, self._environment)
            except AirflowException:
                if self._yarn_application_id is None:
                    raise
        else:
            self.log.info("application %s of an earlier attempt still runs: waiting", self._yarn_application_id)
            self._delete_job_file()
        if self._yarn_application_id is None:
            raise AirflowException("expected spark-submit to report the id of an application on YARN, found none")
        if self._waits:
            self.wait_for(self._yarn_application_id)
        else:
            self.deferred = self._yarn_application_id

    def wait_for(self, application: str) -> None:
        """Wait until an application on YARN ends. Raises AirflowException as `submit` does."""
        self._yarn_application_id = application
        try:
            self._start_yarn_application_status_tracking(application)
        except RuntimeError as error:
            raise AirflowException(
                f"{error}\nThe driver's log has the reason: yarn logs -applicationId {application}"
            ) from error

    def _running_applications(self) -> list[str]:
        """The ids of the applications with the tag that have not ended, and are of the user of the first with the tag.

        Each user of the cluster sees the tag once that runs, and may give it to an own application.
        """
        url = f"{self._get_yarn_rm_base_url()}/ws/v1/cluster/apps"
        query = {"applicationTags": self._tag}
        try:
            answer = requests.get(url, query, auth=self._resolved_yarn_rm_auth, timeout=self._HTTP_TIMEOUT)
            answer.raise_for_status()
            found = (answer.json()["apps"] or {"app": []})["app"]
            users = [str(each["user"]) for each in sorted(found, key=itemgetter("startedTime"))]
            active = [each for each in found if each["state"] in _ACTIVE_STATES]
            if foreign := [str(each["id"]) for each in active if each["user"] != users[0]]:
                self.log.warning("%s: not of user %s, whose application had the tag first", foreign, users[0])
            return [str(each["id"]) for each in active if each["user"] == users[0]]
        except (requests.RequestException, ValueError, KeyError, TypeError) as error:
            raise AirflowException(
                f"expected YARN's ResourceManager at {url} to list its applications, found {type(error).__name__}: "
                f"{error}. An earlier application of this task may still run, so none was submitted. Check "
                f"`{self._YARN_RM_WEBAPP_ADDRESS_EXTRA_KEY}` of Spark connection {self._conn_id!r}; run again."
            ) from error

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._watch_submission(itr) if self.is_elsewhere else itr)

    def _watch_submission(self, lines: Iterable[str]) -> Iterator[str]:
        """Delete the job's file when YARN has it."""
        for line in lines:
            if "Submitted application" in line:
                self._delete_job_file()
            yield line

    def _delete_job_file(self) -> None:
        if self._job_file is not None:
            self._job_file.unlink(missing_ok=True)

    def on_kill(self) -> None:
        """End the job: spark-submit deletes its files with rows, and the driver, which watches it, returns its claim.

        After KILL_SECONDS spark-submit is killed. YARN is asked to kill an application there, Kubernetes to delete the
        driver's pod.
        """
        self._is_killed = True
        if self._pod is not None:
            self._end_pod(self._pod)
            return
        if self._submit_sp:
            self._submit_sp.terminate()
        if self._yarn_application_id:  # before the list, which YARN may not return in time
            self._kill_yarn_application(self._yarn_application_id)
        if self._submit_sp:
            with suppress(TimeoutExpired):
                self._submit_sp.wait(KILL_SECONDS)
        if self.is_elsewhere:
            if self._submit_sp and self._submit_sp.poll() is None:
                self._submit_sp.kill()
            for application in self._running_applications():
                self._kill_yarn_application(application)
        else:
            super().on_kill()

    def _end_pod(self, pod: DriverPod) -> None:
        """Delete the pod and its Secret, within KILL_SECONDS. A pod that spark-submit creates in this moment does not
        start without the Secret."""
        if self._submit_sp and self._submit_sp.poll() is None:
            self._submit_sp.kill()
        for delete in (pod.delete, pod.delete_secret):
            try:
                delete(seconds=KILL_SECONDS / 2)
            except AirflowException as error:
                self.log.error("the driver may still run: %s", error)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the driver runs on the cluster, where it outlives spark-submit and the task."""
        return bool(self._connection["deploy_mode"] == "cluster")

    @property
    def exit_code(self) -> int | None:
        """Exit code of the driver, or of spark-submit; None before it started, and for a driver that YARN runs."""
        if self._pod is not None and self._pod.exit_code is not None:
            return self._pod.exit_code
        return self._submit_sp.returncode if self._submit_sp else None
