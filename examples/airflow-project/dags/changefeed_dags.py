from changefeed.airflow.dags import *  # noqa: F403 - Airflow takes the DAGs of all pipelines from here
