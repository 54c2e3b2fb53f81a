"""A pipeline's verify DAG: plan >> compare >> result, started by hand or by another DAG. It publishes nothing."""

from __future__ import annotations

import json
import logging
from typing import Any, cast

from airflow.sdk import DAG, Context, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from changefeed.airflow.connections import task_connections
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.lineage import DatasetsTask, compared_lineage
from changefeed.airflow.manual_dag import manual_dag, manual_pool
from changefeed.airflow.params import read_params, verify_params
from changefeed.airflow.reporting import report_verification
from changefeed.airflow.tasks import fail_fast
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import find_follower
from changefeed.settings.requests.verify import VerifyRequest

_log = logging.getLogger(__name__)


def verify_dag_id(pipeline: str) -> str:
    """The id of a pipeline's verify DAG."""
    return f"changefeed_verify__{pipeline}"


def verify_dag(pipeline: Pipeline) -> DAG:
    """The DAG that compares one pipeline's topics with its source or a follower.

    Users who may trigger it in Airflow may start comparisons.
    """
    dag = manual_dag(
        pipeline,
        verify_dag_id(pipeline.name),
        "verify",
        f"Compare the topics of pipeline {pipeline.name} with its source",
        __doc__,
        retries=1,
    )
    with dag:
        plan = task(task_id="plan")(plan_comparison)(pipeline.name)
        compare = VerifyOperator(task_id="compare", pipeline=pipeline.name, pool=manual_pool())
        result = ResultTask(
            task_id="result",
            pipeline=pipeline.name,
            lineage=compared_lineage,
            python_callable=report_result,
            op_args=[pipeline.name],
        )
        cast(Any, plan) >> compare >> result
    dag.params.update(_form(pipeline))  # last: tasks that are created later copy the params
    return dag


class VerifyOperator(JobOperator):
    """Runs jobs/verify.py; the job also gets the connection of the requested follower."""

    def __init__(self, *, pipeline: str, **settings: Any) -> None:
        super().__init__(pipeline=pipeline, job="verify.py", arguments=[pipeline], **settings)
        self._follower = ""

    def _read_plan(self, context: Context) -> Any:
        planned = super()._read_plan(context)
        self._follower = planned["request"]["follower"] or ""
        return planned

    def _further_connections(self, pipeline: Pipeline) -> tuple[str, ...]:
        if not self._follower:
            return ()
        # an edited XCom must not name any other server
        return (fail_fast(lambda: find_follower(pipeline.followers, self._follower)).connection,)


class ResultTask(DatasetsTask):
    """Returns the report of the comparison. Fails if it found a difference; the lineage has what it read then too."""

    def execute(self, context: Context) -> Any:
        from changefeed.verify.report import VerifyReport, summary

        report = VerifyReport.from_json(super().execute(context))
        if report.outcome == "differs":
            raise AirflowFailException(
                f"{summary(report)[0]}. The first keys, with both rows, are in the log of the task `compare`."
            )
        return report.to_json()


def _form(pipeline: Pipeline) -> dict[str, Param]:
    return verify_params([follower.connection for follower in pipeline.followers])


def plan_comparison(name: str) -> dict[str, Any]:
    """Check the run's params, and return them as the plan."""
    request = fail_fast(lambda: VerifyRequest.of(read_params(_form(load_pipeline(name)))))
    return {"request": json.loads(request.model_dump_json()), "run": get_current_context()["dag_run"].run_id}


def report_result(name: str) -> dict[str, Any]:
    """The report of the run's comparison, from the commit log."""
    from changefeed.pipeline.windows import last_stable_state
    from changefeed.verify.report import last_reports, summary

    run = get_current_context()["dag_run"].run_id
    connections = task_connections(load_pipeline(name))
    report = next((report for report in last_reports(last_stable_state(connections)) if report.run == run), None)
    if report is None:
        raise AirflowFailException(
            f"the commit log of pipeline {name!r} has no report of run {run!r}: a later comparison has replaced it. "
            "The result of this run is in the log of its task `compare`."
        )
    report_verification(name, report.follower, report.outcome, report.equal_rows, report.differing)
    for line in summary(report):
        _log.info("%s", line)
    return report.to_json()
