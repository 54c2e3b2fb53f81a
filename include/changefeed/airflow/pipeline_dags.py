"""The DAGs of one pipeline."""

from __future__ import annotations

from airflow.sdk import DAG

from changefeed.airflow.backfill_dag import backfill_dag
from changefeed.airflow.ingest_dag import ingest_dag
from changefeed.airflow.seek_dag import seek_dag
from changefeed.pipelines.pipeline import Pipeline


def pipeline_dags(pipeline: Pipeline) -> list[DAG]:
    """Ingest, seek and backfill, for this pipeline only: Airflow's rights on them are the rights on the pipeline."""
    return [ingest_dag(pipeline), seek_dag(pipeline), backfill_dag(pipeline)]
