"""All DAGs of the pipelines folder and the freshness DAG, for an Airflow project that has changefeed as a package.

Import them with one line in a file of the project's dags folder:

    from changefeed.airflow.dags import *  # airflow: changefeed's DAGs

An invalid pipeline file defines no DAG and does not affect the others; the page and `changefeed check` show its error.
"""

import logging

from changefeed.airflow.freshness_dag import freshness_dag
from changefeed.airflow.pipeline_dags import pipeline_dags, pipelines_to_parse

_pipelines, _errors = pipelines_to_parse()
for _error in _errors.values():
    logging.getLogger(__name__).error("%s", _error)

DAGS = [freshness_dag(), *(dag for pipeline in _pipelines.values() for dag in pipeline_dags(pipeline))]

globals().update({dag.dag_id: dag for dag in DAGS})
__all__ = [dag.dag_id for dag in DAGS]
