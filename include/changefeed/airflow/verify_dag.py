"""A pipeline's verify DAG: plan >> compare >> result, by hand or after other runs. Nothing is published."""

from __future__ import annotations

import json
import logging
from typing import Any, cast

from airflow.sdk import DAG, Context, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from changefeed.airflow.connections import airflow_lookup, task_connections
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.manual_dag import manual_dag
from changefeed.airflow.params import given_params, verify_params
from changefeed.airflow.reporting import measured_verification
from changefeed.airflow.tasks import failing_at_once
from changefeed.model.connection import variable_of
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import follower_of
from changefeed.settings.requests.verify import VerifyRequest

_log = logging.getLogger(__name__)


def verify_dag_id(pipeline: str) -> str:
    """The id of a pipeline's verify DAG."""
    return f"changefeed_verify__{pipeline}"


def verify_dag(pipeline: Pipeline) -> DAG:
    """The DAG that compares one pipeline's topics with its source, or with a follower: Airflow's rights on it are the
    rights to do so."""
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
        compare = VerifyOperator(task_id="compare", pipeline=pipeline.name, pool=pipeline.pool)
        result = task(task_id="result")(result_of)(pipeline.name)
        cast(Any, plan) >> compare >> result
    dag.params.update(_form(pipeline))  # at the end: each task that is made after it copies it
    return dag


class VerifyOperator(JobOperator):
    """Runs jobs/verify.py, which gets the connection of the follower that is asked for besides the pipeline's own."""

    def __init__(self, *, pipeline: str, **settings: Any) -> None:
        super().__init__(pipeline=pipeline, job="verify.py", arguments=[pipeline], **settings)
        self._follower = ""

    def _planned(self, context: Context) -> Any:
        planned = super()._planned(context)
        self._follower = planned["request"]["follower"] or ""
        return planned

    def _environment(self, pipeline: Pipeline) -> dict[str, str]:
        environment = super()._environment(pipeline)
        if self._follower:  # whoever edits XComs reaches no other server
            connection = failing_at_once(lambda: follower_of(pipeline.followers, self._follower)).connection
            environment[variable_of(connection)] = airflow_lookup(connection)
        return environment


def _form(pipeline: Pipeline) -> dict[str, Param]:
    return verify_params([follower.connection for follower in pipeline.followers])


def plan_comparison(name: str) -> dict[str, Any]:
    """What the run was asked for, checked."""
    request = failing_at_once(lambda: VerifyRequest.of(given_params(_form(load_pipeline(name)))))
    return {"request": json.loads(request.model_dump_json()), "run": get_current_context()["dag_run"].run_id}


def result_of(name: str) -> dict[str, Any]:
    """The report that the run's comparison left in the commit log; fails where it found a difference."""
    from changefeed.pipeline.windows import settled_state
    from changefeed.verify.report import last_reports, summary

    run = get_current_context()["dag_run"].run_id
    connections = task_connections(load_pipeline(name))
    report = next((report for report in last_reports(settled_state(connections)) if report.run == run), None)
    if report is None:
        raise AirflowFailException(
            f"the commit log of pipeline {name!r} has no report of run {run!r}: another comparison has ended since, "
            "and its report stands there. What this one found is in the log of its task `compare`."
        )
    measured_verification(name, report.follower, report.outcome, report.compared, report.differing)
    lines = summary(report)
    for line in lines:
        _log.info("%s", line)
    if report.outcome == "differs":
        raise AirflowFailException(f"{lines[0]}. The first keys, with both rows, are in the log of the task `compare`.")
    return report.to_json()
