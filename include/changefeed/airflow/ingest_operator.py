"""The `ingest` task: spark-submit of jobs/ingest.py, with a clean environment and errors told apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from changefeed.airflow.connections import job_environment
from changefeed.pipeline_file import load_pipeline

TERMINAL_EXIT_CODE = 2

DEFAULT_CONF = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""A run is short and its log is Airflow's: a web page of its own would only open a port."""


class CleanSparkSubmitHook(SparkSubmitHook):
    """spark-submit that sees the given environment and nothing else of Airflow's.

    The environment goes to the process itself: as `env_vars` it would be added to Airflow's own, and on YARN and
    Kubernetes it would stand on the command line.
    """

    def __init__(self, environment: dict[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self._environment = environment

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        return super().submit(application, **kwargs, env=self._environment)

    @property
    def exit_code(self) -> int | None:
        return self._submit_sp.returncode if self._submit_sp else None


class IngestOperator(SparkSubmitOperator):
    """Publishes the window that the task `plan` froze; a retry publishes exactly the same one."""

    template_fields: Sequence[str] = ("application_args",)

    def __init__(self, *, pipeline: str, project: Path, **settings: Any) -> None:
        super().__init__(
            application=str(project / "jobs" / "ingest.py"),
            application_args=[pipeline, "{{ ti.xcom_pull('plan')['window'] | tojson }}"],
            name=f"changefeed-{pipeline}",
            verbose=False,
            **settings,
        )
        self._pipeline_name = pipeline
        self._project = project
        self._settings = settings

    def _get_hook(self) -> CleanSparkSubmitHook:
        environment = job_environment(load_pipeline(self._pipeline_name))
        include = str(self._project / "include")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (include, environment.get("PYTHONPATH"))))
        return CleanSparkSubmitHook(
            environment,
            conn_id=self._settings.get("conn_id", "spark_default"),
            conf=DEFAULT_CONF | (self._settings.get("conf") or {}),
            name=f"changefeed-{self._pipeline_name}",
            application_args=self.application_args,
        )

    def execute(self, context: Context) -> Any:
        try:
            return super().execute(context)
        except AirflowException as error:
            if isinstance(self._hook, CleanSparkSubmitHook) and self._hook.exit_code == TERMINAL_EXIT_CODE:
                raise AirflowFailException(f"a retry cannot help, see the log above: {error}") from error
            raise
