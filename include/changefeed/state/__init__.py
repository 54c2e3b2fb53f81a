"""Where checkpoints are kept outside Airflow."""
