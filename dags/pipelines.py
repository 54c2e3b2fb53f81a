"""The DAGs of each pipeline of include/pipelines/*.yaml. refused_pipelines.py reports invalid files."""

from changefeed.airflow.pipeline_dags import pipeline_dags, pipelines_to_parse

_pipelines, _ = pipelines_to_parse()
for _pipeline in _pipelines.values():
    globals().update({_dag.dag_id: _dag for _dag in pipeline_dags(_pipeline)})
