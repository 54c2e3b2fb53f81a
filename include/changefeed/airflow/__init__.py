"""Airflow at the edge: connections, the Variable store, and what the tasks of a DAG do."""
