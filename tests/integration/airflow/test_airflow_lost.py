"""Loss of Airflow's database between two runs of a pipeline whose state is in Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow_site import site
from integration.kafka_pipeline import committed, ids

from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

INGEST = "changefeed_ingest__lost"

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]


def test_new_airflow_database_resumes_from_kafka_and_repeats_nothing(
    tmp_path: Path, source_mysql: MysqlServer, kafka_broker: KafkaBroker, spark_connect: SparkConnectServer
) -> None:
    source_mysql.execute("CREATE DATABASE lost", "CREATE TABLE lost.t (id INT PRIMARY KEY)")
    with site(tmp_path / "site", source_mysql, kafka_broker, spark_connect) as airflow:
        airflow.add_pipeline("lost", "lost", more="checkpoint: {store: kafka}\n", server_ids="65400-65431")
        assert airflow.run(INGEST)["ingest"] == "skipped"  # `start: latest` sets the first checkpoint
        source_mysql.execute("INSERT INTO lost.t VALUES (1), (2)")
        assert airflow.run(INGEST)[""] == "success"
        airflow.airflow.stop()
        folder = tmp_path / "site" / "airflow"
        removed = [*folder.glob("airflow.db*"), *folder.glob("migrated-*")]
        assert removed
        for file in removed:
            file.unlink()
        source_mysql.execute("INSERT INTO lost.t VALUES (3)")
        airflow.airflow.start()
        airflow._tokens.clear()
        airflow.wait_for_dag(INGEST)
        with airflow.client() as client:
            assert client.get(f"/api/v2/dags/{INGEST}/dagRuns").json()["total_entries"] == 0, "its history is gone"
        assert airflow.run(INGEST)[""] == "success"
        published = ids(committed(kafka_broker.bootstrap, "lost.t"))
        assert len(published) == len(set(published)) == 3
        with airflow.client() as client:
            shown = client.get("/changefeed/api/pipelines/lost").json()["position"]
        assert shown["state"] == "current", shown
    source_mysql.execute("DROP DATABASE lost")
