"""The operators that run a file of jobs/ with a minimal environment. A terminal error fails the task without retries.

spark-submit runs the job. If the pipeline names a Spark Connect server, Python runs it directly, without a JVM.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import NamedTemporaryFile
from typing import IO, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from changefeed.airflow.connections import job_environment
from changefeed.airflow.reporting import report_retry
from changefeed.airflow.task_processes import task_variables
from changefeed.airflow.tasks import fail_fast, skip_after_seek
from changefeed.airflow.xcom_checks import read_planned_run
from changefeed.settings.file import load_pipeline, pipelines_folder
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.class_archive import with_class_archive
from changefeed.spark.conf import (
    JOB_CONF,
    PRIVATE_UMASK,
    SMALL_BYTES,
    SMALL_JOB_CONF,
    environment_at,
    job_conf,
    properties,
)
from changefeed.spark.run_as_job import EXIT_TERMINAL

SOURCE_ROOT = Path(__file__).parents[2]
"""The folder from which the package is imported: `include/` of a checkout, or the folder of an installed wheel."""

KILL_SECONDS = 3.0
"""How long spark-submit may take to end in order. Airflow kills a task 5 seconds after it asked it to end."""


def jobs_folder() -> Path:
    """The folder of the job files: `jobs/` of a checkout, or `changefeed/jobs` inside an installed wheel."""
    installed = SOURCE_ROOT / "changefeed" / "jobs"
    return installed if installed.is_dir() else SOURCE_ROOT.parent / "jobs"


class CleanSparkSubmitHook(SparkSubmitHook):
    """Runs spark-submit with exactly ``environment``, without Airflow's own variables.

    The process gets the environment directly. `env_vars` would be added to Airflow's own environment, and on YARN and
    Kubernetes would be visible on the command line.
    """

    def __init__(self, environment: dict[str, str], conf_file: IO[str], **settings: Any) -> None:
        """Raises AirflowFailException for a Spark connection with which no job can work."""
        try:
            super().__init__(properties_file=conf_file.name, **settings)
        except NameError as error:  # the provider does not import what it needs for k8s://
            raise AirflowFailException(
                f"Airflow's Spark provider does not accept the master of connection {settings['conn_id']!r}: {error}. "
                "For Kubernetes it needs the package apache-airflow-providers-cncf-kubernetes, found none. Nothing was "
                "published. Install changefeed[kubernetes]."
            ) from error
        if self._connection["deploy_mode"] == "cluster":
            raise AirflowFailException(
                f"expected deploy mode 'client' in the Spark connection {settings['conn_id']!r}, found 'cluster': the "
                "driver would run on a machine of the cluster, which has no connections of the pipeline. Nothing was "
                "published. Set deploy-mode to client."
            )
        master = str(self._connection["master"])
        self._environment = environment | environment_at(master)
        conf_file.write(properties(job_conf(self._conf, master, {})))
        conf_file.flush()

    def _build_spark_common_args(self) -> list[str]:
        """Airflow's arguments without the Spark settings, which are passed in a file: command lines are visible to all
        users of the machine and in the task's log. spark-defaults.conf still applies."""
        arguments = super()._build_spark_common_args()
        for name, value in self._conf.items():
            at = arguments.index(f"{name}={value}")
            del arguments[at - 1 : at + 1]
        return [*arguments, "--load-spark-defaults"]

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit. Only this user can read the files that it creates."""
        environment = self._environment if self._is_elsewhere else self._environment | task_variables()
        return super().submit(application, **kwargs, env=environment, umask=PRIVATE_UMASK)

    def on_kill(self) -> None:
        """End the job: spark-submit deletes its files with rows, and the driver, which watches it, returns its claim.

        After KILL_SECONDS spark-submit is killed.
        """
        if self._submit_sp and not self._is_elsewhere:
            self._submit_sp.terminate()
            with suppress(TimeoutExpired):
                self._submit_sp.wait(KILL_SECONDS)
        super().on_kill()

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the driver runs on the cluster, where it outlives spark-submit and the task."""
        return bool(self._connection["deploy_mode"] == "cluster")

    @property
    def exit_code(self) -> int | None:
        """Exit code of spark-submit; None before it started."""
        return self._submit_sp.returncode if self._submit_sp else None


class JobOperator(SparkSubmitOperator):
    """Runs a file of jobs/ for a pipeline with the plan that the task `plan` returned.

    The job's first argument is the path of a JSON file with the plan, because Linux limits one argument to 128 KiB, and
    a few GTID sets may be larger. spark-submit copies the file to the driver (`--files`).
    """

    template_fields: Sequence[str] = ("application_args",)

    def __init__(self, *, pipeline: str, job: str, arguments: list[str], **settings: Any) -> None:
        super().__init__(
            application=str(jobs_folder() / job),
            application_args=arguments,
            name="changefeed",
            verbose=False,
            **settings,
        )
        self.pipeline_name = pipeline
        self._conf = JOB_CONF
        self._plan_file = ""
        self._conf_file: IO[str]
        self._python: SubprocessHook | None = None

    def _environment(self, pipeline: Pipeline) -> dict[str, str]:
        environment = job_environment(pipeline)
        environment["CHANGEFEED_PIPELINES"] = str(pipelines_folder())
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCE_ROOT), environment.get("PYTHONPATH"))))
        return environment

    def _get_hook(self) -> CleanSparkSubmitHook:
        pipeline = load_pipeline(self.pipeline_name)
        return CleanSparkSubmitHook(
            self._environment(pipeline),
            self._conf_file,
            conn_id=pipeline.spark.connection,
            conf={**with_class_archive(self._conf), **(self.conf or {})},
            name=f"changefeed-{pipeline.name}",
            application_args=[self._plan_file, *(self.application_args or ())],
            files=self._plan_file,
        )

    def execute(self, context: Context) -> Any:
        with _private_file("plan") as plan, _private_file("spark") as self._conf_file:
            json.dump(self._read_plan(context), plan)
            plan.flush()
            self._plan_file = plan.name
            return self._run(context)

    def _read_plan(self, context: Context) -> Any:
        return context["ti"].xcom_pull(task_ids="plan")

    def _run(self, context: Context) -> Any:
        if context["ti"].try_number > 1:
            report_retry(self.pipeline_name, self.task_id)
        pipeline = load_pipeline(self.pipeline_name)
        self.conf = dict(pipeline.spark.conf)  # Airflow adds that of OpenLineage to it
        if pipeline.spark.connect:
            return self._run_with_connect(pipeline)
        try:
            return super().execute(context)
        except AirflowException as error:
            if isinstance(self._hook, CleanSparkSubmitHook) and self._hook.exit_code == EXIT_TERMINAL:
                raise AirflowFailException(
                    f"the error is terminal, so the task is not retried; see the log above: {error}"
                ) from error
            raise

    def _run_with_connect(self, pipeline: Pipeline) -> None:
        self._python = SubprocessHook()
        command = [sys.executable, str(self.application), self._plan_file, *map(str, self.application_args or ())]
        exit_code = self._python.run_command(command, env=self._environment(pipeline) | task_variables()).exit_code
        if exit_code == EXIT_TERMINAL:
            raise AirflowFailException("the error is terminal, so the task is not retried; see the log above")
        if exit_code:
            raise AirflowException(f"the job ended with exit code {exit_code}, see the log above")

    def on_kill(self) -> None:
        """End the job if it has started. Airflow calls it on *mark failed*, *clear*, a timeout and SIGTERM."""
        if self._python is not None:
            with suppress(ProcessLookupError):  # it has ended by itself
                self._python.send_sigterm()  # type: ignore[no-untyped-call]  # Airflow declares no types here
        elif self._hook is not None:
            super().on_kill()


class IngestOperator(JobOperator):
    """Publishes the windows that the task `plan` froze; a retry publishes the same windows.

    Windows that were sealed before a failure are committed by the retry or, after the last retry, by the next run. The
    task is skipped if a seek has discarded its windows, which is possible while the DAG is paused.
    """

    def __init__(self, *, pipeline: str, **settings: Any) -> None:
        super().__init__(
            pipeline=pipeline,
            job="ingest.py",
            arguments=[pipeline, "--max-seconds", "{{ params.max_seconds or 0 }}"],
            **settings,
        )

    def _read_plan(self, context: Context) -> Any:
        planned = super()._read_plan(context)  # each call reads the XCom again, so each checks it
        fail_fast(lambda: read_planned_run(self.pipeline_name, planned))
        return planned

    def execute(self, context: Context) -> Any:
        planned = self._read_plan(context)
        skip_after_seek(self.pipeline_name, planned)
        if planned["lag_bytes"] < SMALL_BYTES:
            self._conf = SMALL_JOB_CONF
        return super().execute(context)


def _private_file(what: str) -> IO[str]:
    """A new temporary file that only its owner can read; closing it deletes it."""
    return NamedTemporaryFile("w", prefix=f"changefeed-{what}-")
