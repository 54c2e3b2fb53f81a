"""The DAG that checks whether all pipelines publish in time. In its own file, so no error of another file stops it."""

from changefeed.airflow.freshness_dag import freshness_dag

changefeed_freshness = freshness_dag()
