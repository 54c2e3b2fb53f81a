"""A pipeline's replicate DAG: one task for each follower applies the changes up to the low watermark."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Context

from changefeed.airflow.ingest_dag import SCHEDULE_START, dag_tags, display_name, task_settings
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.lineage import applied_lineage
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import FollowerSettings, find_follower
from changefeed.spark.conf import SMALL_JOB_CONF


def replicate_dag_id(pipeline: str) -> str:
    """The id of a pipeline's replicate DAG."""
    return f"changefeed_replicate__{pipeline}"


def replicate_dag(pipeline: Pipeline) -> DAG:
    """The replicate DAG of one pipeline: on the pipeline's schedule, with independent tasks for its followers."""
    dag = DAG(
        dag_id=replicate_dag_id(pipeline.name),
        dag_display_name=display_name(pipeline, "replicate"),
        description=f"Apply the changes of pipeline {pipeline.name} to its followers",
        schedule=pipeline.schedule,
        start_date=SCHEDULE_START,
        catchup=False,
        max_active_runs=1,
        default_args=task_settings(pipeline),
        tags=dag_tags(pipeline, "replicate"),
        doc_md=__doc__,
        is_paused_upon_creation=False,
    )
    with dag:
        for follower in pipeline.followers:
            ReplicateOperator(
                task_id=f"to_{follower.connection}",
                pipeline=pipeline.name,
                follower=follower.connection,
                conn_id=pipeline.spark.connection,
                conf=pipeline.spark.conf,
                pool=pipeline.pool,
            )
    return dag


class ReplicateOperator(JobOperator):
    """Runs jobs/replicate.py for one of the pipeline's followers; the job also gets the follower's connection."""

    def __init__(self, *, pipeline: str, follower: str, **settings: Any) -> None:
        super().__init__(pipeline=pipeline, job="replicate.py", arguments=[pipeline], **settings)
        self.follower = follower
        self._conf = SMALL_JOB_CONF

    def _read_plan(self, context: Context) -> Any:  # noqa: ARG002 - the follower stores its position
        return self._settings(load_pipeline(self.pipeline_name)).model_dump()

    def _settings(self, pipeline: Pipeline) -> FollowerSettings:
        return find_follower(pipeline.followers, self.follower)

    def _further_connections(self, pipeline: Pipeline) -> tuple[str, ...]:
        return (self._settings(pipeline).connection,)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 - the interface
        """The lineage of this attempt, from topics to the follower's tables."""
        return applied_lineage(load_pipeline(self.pipeline_name), self._result, self.follower)

    def _deploy_mode_of(self, pipeline: Pipeline) -> str:  # noqa: ARG002 - the job uses no Spark
        return "client"
