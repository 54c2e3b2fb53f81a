"""The `ingest` task: jobs/ingest.py, with a clean environment; an error that a retry cannot help fails at once.

spark-submit runs it; Python itself where the pipeline names a Spark Connect server: then no JVM has to start.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from changefeed.airflow.connections import job_environment
from changefeed.airflow.handed_over import own_run
from changefeed.airflow.reporting import measured_retry
from changefeed.airflow.tasks import failing_at_once, skip_if_sought
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
from changefeed.spark.submitted import EXIT_TERMINAL

SOURCE_ROOT = Path(__file__).parents[2]
"""The folder that the package is imported from: `include/` of a checkout, or where a wheel was installed."""


def jobs_folder() -> Path:
    """Where the files are that spark-submit runs: `jobs/` of a checkout; a wheel has them inside the package."""
    installed = SOURCE_ROOT / "changefeed" / "jobs"
    return installed if installed.is_dir() else SOURCE_ROOT.parent / "jobs"


class CleanSparkSubmitHook(SparkSubmitHook):
    """spark-submit that sees the given environment and nothing else of Airflow's.

    The environment goes to the process itself: as `env_vars` it would be added to Airflow's own, and on YARN and
    Kubernetes it would stand on the command line.
    """

    def __init__(self, environment: dict[str, str], conf_file: IO[str], **settings: Any) -> None:
        super().__init__(properties_file=conf_file.name, **settings)
        master = str(self._connection["master"])
        self._environment = environment | environment_at(master)
        conf_file.write(properties(job_conf(self._conf, master, {})))
        conf_file.flush()

    def _build_spark_common_args(self) -> list[str]:
        """Airflow's arguments, but for the settings, which go in a file: a command line is shown to all who list
        processes, and in the task's log. spark-defaults.conf counts all the same."""
        arguments = super()._build_spark_common_args()
        for name, value in self._conf.items():
            at = arguments.index(f"{name}={value}")
            del arguments[at - 1 : at + 1]
        return [*arguments, "--load-spark-defaults"]

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit with that environment. What it makes is for this user alone."""
        return super().submit(application, **kwargs, env=self._environment, umask=PRIVATE_UMASK)

    @property
    def exit_code(self) -> int | None:
        """How spark-submit ended; None before it began."""
        return self._submit_sp.returncode if self._submit_sp else None


class JobOperator(SparkSubmitOperator):
    """One of the files in jobs/, run for a pipeline with what the task `plan` returned.

    The job's first argument is a file with that, as JSON: an argument itself may have 128 KiB, which a few GTID sets
    pass. spark-submit brings the file to the driver as it does with the job's own (`--files`), wherever that runs.
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
            conf={**with_class_archive(self._conf), **pipeline.spark.conf},
            name=f"changefeed-{pipeline.name}",
            application_args=[self._plan_file, *(self.application_args or ())],
            files=self._plan_file,
        )

    def execute(self, context: Context) -> Any:
        with _private_file("plan") as plan, _private_file("spark") as self._conf_file:
            json.dump(self._planned(context), plan)
            plan.flush()
            self._plan_file = plan.name
            return self._run(context)

    def _planned(self, context: Context) -> Any:
        return context["ti"].xcom_pull(task_ids="plan")

    def _run(self, context: Context) -> Any:
        if context["ti"].try_number > 1:
            measured_retry(self.pipeline_name, self.task_id)
        pipeline = load_pipeline(self.pipeline_name)
        if pipeline.spark.connect:
            return self._run_with_connect(pipeline)
        try:
            return super().execute(context)
        except AirflowException as error:
            if isinstance(self._hook, CleanSparkSubmitHook) and self._hook.exit_code == EXIT_TERMINAL:
                raise AirflowFailException(f"a retry cannot help, see the log above: {error}") from error
            raise

    def _run_with_connect(self, pipeline: Pipeline) -> None:
        self._python = SubprocessHook()
        command = [sys.executable, str(self.application), self._plan_file, *map(str, self.application_args or ())]
        exit_code = self._python.run_command(command, env=self._environment(pipeline)).exit_code
        if exit_code == EXIT_TERMINAL:
            raise AirflowFailException("a retry cannot help, see the log above")
        if exit_code:
            raise AirflowException(f"the job ended with exit code {exit_code}, see the log above")

    def on_kill(self) -> None:
        if self._python is not None:
            self._python.send_sigterm()  # type: ignore[no-untyped-call]  # Airflow declares no types here
        else:
            super().on_kill()


class IngestOperator(JobOperator):
    """Publishes the windows that the task `plan` froze; a retry publishes exactly the same ones.

    What it sealed before it failed is committed by its retry or, where none is left, by the next run. It is skipped
    where a seek gave those windows up, as one may while the DAG is paused.
    """

    def __init__(self, *, pipeline: str, **settings: Any) -> None:
        super().__init__(
            pipeline=pipeline,
            job="ingest.py",
            arguments=[pipeline, "--max-seconds", "{{ params.max_seconds or 0 }}"],
            **settings,
        )

    def _planned(self, context: Context) -> Any:
        planned = super()._planned(context)  # anew with each call, so that each is looked at
        failing_at_once(lambda: own_run(self.pipeline_name, planned))
        return planned

    def execute(self, context: Context) -> Any:
        planned = self._planned(context)
        skip_if_sought(self.pipeline_name, planned)
        if planned["lag_bytes"] < SMALL_BYTES:
            self._conf = SMALL_JOB_CONF
        return super().execute(context)


def _private_file(what: str) -> IO[str]:
    """A new file that only its owner reads; removed when it is closed."""
    return NamedTemporaryFile("w", prefix=f"changefeed-{what}-")
