"""DAGs, operators and tasks of a pipeline, its Airflow connections, alerts and assets."""
