"""The DAGs of one pipeline."""

from __future__ import annotations

from airflow.sdk import DAG

from changefeed.airflow.backfill_dag import backfill_dag
from changefeed.airflow.ingest_dag import ingest_dag
from changefeed.airflow.replicate_dag import replicate_dag
from changefeed.airflow.seek_dag import seek_dag
from changefeed.airflow.snapshot_dag import snapshot_dag
from changefeed.airflow.verify_dag import verify_dag
from changefeed.settings.pipeline import Pipeline

__all__ = ["pipeline_dags"]


def pipeline_dags(pipeline: Pipeline) -> list[DAG]:
    """Ingest, seek, backfill, snapshot, verify and, where it has followers, replicate, for this pipeline only: rights
    on them are those on the pipeline."""
    dags = [
        ingest_dag(pipeline),
        seek_dag(pipeline),
        backfill_dag(pipeline),
        snapshot_dag(pipeline),
        verify_dag(pipeline),
    ]
    return [*dags, replicate_dag(pipeline)] if pipeline.followers else dags
