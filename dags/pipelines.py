"""The DAGs of each pipeline of include/pipelines/*.yaml. Wrong files are the business of refused_pipelines.py."""

from changefeed.airflow.pipeline_dags import pipeline_dags
from changefeed.settings.file import load_pipelines

_pipelines, _ = load_pipelines()
for _pipeline in _pipelines.values():
    globals().update({_dag.dag_id: _dag for _dag in pipeline_dags(_pipeline)})
