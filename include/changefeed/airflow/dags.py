"""All DAGs of the pipelines folder, for an Airflow project that has changefeed as a package.

One line in a file of the project's dags folder brings them in:

    from changefeed.airflow.dags import *  # airflow: changefeed's DAGs

A pipeline's file that is wrong defines no DAG and does not stop the others; the page and `changefeed check` name it.
"""

import logging

from changefeed.airflow.pipeline_dags import pipeline_dags
from changefeed.settings.file import load_pipelines

_pipelines, _errors = load_pipelines()
for _error in _errors.values():
    logging.getLogger(__name__).error("%s", _error)

DAGS = [dag for pipeline in _pipelines.values() for dag in pipeline_dags(pipeline)]

globals().update({dag.dag_id: dag for dag in DAGS})
__all__ = [dag.dag_id for dag in DAGS]
