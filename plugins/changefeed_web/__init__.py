"""The page and the REST API of changefeed, inside Airflow's API server."""
