"""Checkpoint stores: Kafka, a database table, Airflow Variables."""
