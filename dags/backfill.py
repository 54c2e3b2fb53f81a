"""The DAG that publishes a part of the binlog again, by hand."""

from changefeed.airflow.backfill_dag import backfill_dag
from changefeed.pipelines.file import load_pipelines

dag = backfill_dag(sorted(load_pipelines()[0]))
