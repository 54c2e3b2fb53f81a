"""One ingest DAG a pipeline, from include/pipelines/*.yaml."""

from pathlib import Path

from changefeed.airflow.ingest_dag import RefusedPipelines, ingest_dag
from changefeed.pipeline_file import load_pipelines

_pipelines, _errors = load_pipelines()
for _pipeline in _pipelines.values():
    globals()[f"changefeed_ingest__{_pipeline.name}"] = ingest_dag(_pipeline, Path(__file__).parents[1])
if _errors:
    refused = RefusedPipelines(_errors)
