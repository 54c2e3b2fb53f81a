"""Reports invalid pipeline files as an import error in Airflow. Defines no DAG.

If a file has an import error, Airflow stops scheduling its DAGs, so the error must not be in a file with DAGs of valid
pipelines.
"""

from changefeed.airflow.pipeline_dags import refuse_invalid_pipelines

refuse_invalid_pipelines()
