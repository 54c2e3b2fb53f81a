"""One ingest DAG a pipeline, from include/pipelines/*.yaml. Wrong files are the business of refused_pipelines.py."""

from changefeed.airflow.ingest_dag import ingest_dag
from changefeed.pipelines.file import load_pipelines

_pipelines, _ = load_pipelines()
for _pipeline in _pipelines.values():
    globals()[f"changefeed_ingest__{_pipeline.name}"] = ingest_dag(_pipeline)
