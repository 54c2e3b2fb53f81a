"""The operators that run a file of jobs/ with a minimal environment. A terminal error fails the task without retries.

spark-submit runs the job. If the pipeline names a Spark Connect server, Python runs it directly, without a JVM.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout

from changefeed.airflow.alerts import RunAlerts
from changefeed.airflow.connections import job_environment, job_variables, task_connections
from changefeed.airflow.end_watch import ended_by_airflow
from changefeed.airflow.pipeline_versions import PipelineVersions
from changefeed.airflow.reporting import records_by_topic, report_retry, sum_rows
from changefeed.airflow.submit_hook import CleanSparkSubmitHook
from changefeed.airflow.task_processes import is_supervised, task_variables
from changefeed.airflow.tasks import (
    checkpoint_store_of,
    fail_fast,
    is_sealed,
    report_committed,
    skip_after_seek,
)
from changefeed.airflow.unsent_events import emit_unsent, read_unsent
from changefeed.airflow.xcom_checks import read_planned_run
from changefeed.airflow.yarn_trigger import ApplicationTrigger
from changefeed.model.manifest import Manifest
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.conf import JOB_CONF, SMALL_BYTES, SMALL_JOB_CONF
from changefeed.spark.job_file import JOB_FILE, STOP_FILE, JobFile
from changefeed.spark.job_result import JOB_RESULT, JobResult, read_result
from changefeed.spark.run_as_job import EXIT_TERMINAL

SOURCE_ROOT = Path(__file__).parents[2]
"""The folder from which the package is imported: `include/` of a checkout, or the folder of an installed wheel."""

ATTEMPT = ["--attempt", "{{ ti.try_number }}"]
"""Arguments of a job that waits for the job of an earlier attempt."""

_TERMINAL_DRIVER = re.compile(rf"User application exited with status {EXIT_TERMINAL}\b")
"""In YARN's reason for the end of an application."""


def jobs_folder() -> Path:
    """The folder of the job files: `jobs/` of a checkout, or `changefeed/jobs` inside an installed wheel."""
    installed = SOURCE_ROOT / "changefeed" / "jobs"
    return installed if installed.is_dir() else SOURCE_ROOT.parent / "jobs"


class JobOperator(SparkSubmitOperator):
    """Runs a file of jobs/ for a pipeline with the plan that the task `plan` returned.

    The job's first argument is the path of its `JobFile`, with the plan, the pipeline and its connections.
    """

    template_fields: Sequence[str] = ("application_args",)

    def __init__(self, *, pipeline: str, job: str, arguments: list[str], **settings: Any) -> None:
        super().__init__(
            application=str(jobs_folder() / job),
            application_args=arguments,
            name="changefeed",
            verbose=False,
            durable=False,  # a retry finds an application of an earlier attempt by its tag
            **settings,
        )
        self.pipeline_name = pipeline
        self._conf = JOB_CONF
        self._plan: Any = None
        self._run_id = ""
        """The run of the DAG, if another run with the same plan has a job of its own; else ''."""
        self._watch: Callable[[Path], AbstractContextManager[object]] = nullcontext
        """Creates the file of its argument, which asks the job to end, while the task runs; by default it does not."""
        self._result: JobResult = {}
        """What the job has done, as far as it says so. An attempt that failed may have done a part."""
        self._job_file = self._result_file = Path()
        self._conf_file: IO[str]
        self._python: SubprocessHook | None = None

    def _environment(self, pipeline: Pipeline) -> dict[str, str]:
        environment = job_environment(pipeline)
        environment[JOB_RESULT] = str(self._result_file)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCE_ROOT), environment.get("PYTHONPATH"))))
        return environment

    def _further_connections(self, pipeline: Pipeline) -> tuple[str, ...]:  # noqa: ARG002
        """Ids of connections that the job gets in addition to the pipeline's own."""
        return ()

    def _deploy_mode_of(self, pipeline: Pipeline) -> str | None:
        """Where the driver runs; None: where the Spark connection says."""
        return pipeline.spark.deploy_mode

    def _get_hook(self) -> CleanSparkSubmitHook:
        pipeline = load_pipeline(self.pipeline_name)
        return CleanSparkSubmitHook(
            self._environment(pipeline),
            self._conf_file,
            defaults=self._conf,
            job_file=self._job_file,
            tag=self._tag,
            conn_id=pipeline.spark.connection,
            conf={**(self.conf or {}), **pipeline.spark.conf},  # Airflow adds that of OpenLineage to self.conf
            name=f"changefeed-{pipeline.name}",
            application_args=list(self.application_args or ()),
            deploy_mode=self._deploy_mode_of(pipeline),
            waits=not pipeline.spark.deferrable,
        )

    @property
    def _tag(self) -> str:
        """The same for all attempts of a task with the same plan, and only for these."""
        identity = json.dumps(
            [self.pipeline_name, Path(self.application).name, self._plan, *filter(None, [self._run_id])],
            sort_keys=True,
        )
        return f"changefeed-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"

    def execute(self, context: Context) -> Any:
        with self._files(context):
            try:
                with self._watch(self._job_file.with_name(STOP_FILE)):
                    self._run(context)
            finally:
                self._result = read_result(self._result_file)
            return self._result or None

    @contextmanager
    def _files(self, context: Context) -> Iterator[None]:
        with TemporaryDirectory(prefix="changefeed-job-") as folder, _private_file("spark") as self._conf_file:
            self._plan = self._read_plan(context)
            self._job_file, self._result_file = Path(folder, JOB_FILE), Path(folder, "result.json")
            yield

    def _defer(self, pipeline: Pipeline, application: str) -> NoReturn:
        """Leave the worker until the application on YARN has ended; then Airflow calls `resume`."""
        self.defer(
            trigger=ApplicationTrigger(
                pipeline.name, application, pipeline.spark.connection, pipeline.kafka.lease_seconds
            ),
            method_name="resume",
            kwargs={"application": application},
            timeout=self.execution_timeout,
        )

    def resume(self, context: Context, event: dict[str, Any], application: str) -> None:
        """Raise the error with which the application ended, if any, as `execute` does where it waits itself."""

        def check() -> None:
            if not event["is_known"]:
                raise AirflowException(
                    f"expected YARN to know application {application}; it does not, or gave the triggerer no answer: "
                    "see the trigger's log. A retry publishes what is missing."
                )
            hook.wait_for(application)  # it has ended

        with self._files(context):
            self._hook = hook = self._get_hook()
            self._check_result(check)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """As Airflow's, and end the application of a task that was deferred for longer than its timeout allows."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            with self._files(context):
                self._hook = self._get_hook()
                self.on_kill()
            raise

    def _read_plan(self, context: Context) -> Any:
        return context["ti"].xcom_pull(task_ids="plan")

    def _run(self, context: Context) -> None:
        if context["ti"].try_number > 1:
            report_retry(self.pipeline_name, self.task_id)
        pipeline = load_pipeline(self.pipeline_name)
        variables = job_variables(pipeline, *self._further_connections(pipeline))
        JobFile.of(self._plan, pipeline, variables).write(self._job_file.parent)
        if pipeline.spark.connect:
            self._run_with_connect(pipeline)
            return
        self._hook = None
        self._check_result(partial(super().execute, context))
        hook: Any = self._hook
        if isinstance(hook, CleanSparkSubmitHook) and hook.deferred:
            self._defer(pipeline, hook.deferred)

    def _check_result(self, wait: Callable[[], None]) -> None:
        """Call ``wait``, which raises the job's error. A terminal error is raised as AirflowFailException.

        On a cluster, a job whose windows are sealed has no error.
        """
        try:
            wait()
        except AirflowException as error:
            hook = self._hook
            if not isinstance(hook, CleanSparkSubmitHook):
                raise
            if hook.is_elsewhere and self._is_published():
                self.log.warning("all windows of the run are sealed, so the task is done, in spite of: %s", error)
                return
            if hook.exit_code == EXIT_TERMINAL or _TERMINAL_DRIVER.search(str(error)):
                raise AirflowFailException(
                    f"the error is terminal, so the task is not retried; see the log above: {error}"
                ) from error
            raise

    def _is_published(self) -> bool:
        """Whether the commit log says that the job has done its work; False if only the job itself can say that."""
        return False

    def _run_with_connect(self, pipeline: Pipeline) -> None:
        self._python = SubprocessHook()
        command = [sys.executable, str(self.application), str(self._job_file), *map(str, self.application_args or ())]
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
            self._hook.on_kill()


class IngestOperator(JobOperator):
    """Publishes the windows that the task `plan` froze; a retry publishes the same windows.

    Windows that were sealed before a failure are committed by the retry or, after the last retry, by the next run. With
    the pipeline's setting `windows` the job freezes windows itself, and the task commits them meanwhile. The
    task is skipped if a seek has discarded its windows, which is possible while the DAG is paused.
    """

    def __init__(self, *, pipeline: str, **settings: Any) -> None:
        super().__init__(
            pipeline=pipeline,
            job="ingest.py",
            arguments=[
                *(pipeline, "--max-seconds", "{{ params.max_seconds or 0 }}"),
                *ATTEMPT,
            ],
            **settings,
        )

    def _read_plan(self, context: Context) -> Any:
        planned = super()._read_plan(context)  # each call reads the XCom again, so each checks it
        fail_fast(lambda: read_planned_run(self.pipeline_name, planned))
        return planned

    def execute(self, context: Context) -> Any:
        planned = self._read_plan(context)
        if not planned["windows"]:
            return self._execute_continuously(context)
        skip_after_seek(self.pipeline_name, planned)
        if planned["lag_bytes"] < SMALL_BYTES:
            self._conf = SMALL_JOB_CONF
        return super().execute(context)

    def _execute_continuously(self, context: Context) -> dict[str, Any]:
        """Wait for a job that publishes windows one after another, and commit them meanwhile; end it if the DAG is
        paused, or the task marked or cleared. Returns the rows by table and op, and the records by topic, of the
        windows for which it sends asset events at the end; see `emit_unsent`."""
        from changefeed.ingest.checkpoint_mover import CheckpointMover
        from changefeed.kept_clients import keep_clients

        pipeline = load_pipeline(self.pipeline_name)
        connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
        versions, alerts = PipelineVersions(pipeline), RunAlerts()
        self._run_id = str(context["run_id"])  # plans of an idle pipeline are equal
        self._watch = partial(_end_watch, context)
        keep_clients()

        def report(manifests: Sequence[Manifest]) -> None:
            latest = versions.read()
            current = connections if latest is pipeline else task_connections(latest)
            report_committed(latest, current, manifests, alerts)

        earlier = read_unsent(connections)
        try:
            with CheckpointMover(connections, store, report) as mover:
                super().execute(context)
        finally:
            alerts.report_rest(versions.read())
        committed = emit_unsent(versions, connections, store, [*earlier, *mover.committed])
        return {"rows": sum_rows(committed), "records": records_by_topic(committed)}

    def _is_published(self) -> bool:
        return is_sealed(self.pipeline_name, self._plan)


def _end_watch(context: Context, stop: Path) -> AbstractContextManager[None]:
    """Asks the job of a task to end, see `ended_by_airflow`."""
    task, run_id = context["ti"], str(context["run_id"])

    def is_paused() -> bool:
        return bool(task.get_dag(task.dag_id).is_paused)

    def is_running() -> bool:
        states = task.get_task_states(task.dag_id, task_ids=[task.task_id], run_ids=[run_id])
        return bool(states[run_id][task.task_id] == "running")

    # Airflow starts no task of a paused DAG: so under a supervisor it was active.
    return ended_by_airflow(is_paused, is_running, stop, was_active=is_supervised())


def _private_file(what: str) -> IO[str]:
    """A new temporary file that only its owner can read; closing it deletes it."""
    return NamedTemporaryFile("w", prefix=f"changefeed-{what}-")
