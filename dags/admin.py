"""The DAG that seeks: moves a pipeline's checkpoint, by hand."""

from changefeed.airflow.admin_dag import admin_dag
from changefeed.pipelines.file import load_pipelines

dag = admin_dag(sorted(load_pipelines()[0]))
