"""A pipeline on a Spark Connect server: its DAG and `changefeed run` start no JVM."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from integration.airflow.test_ingest_dag import IN_FULL, SKIPPED, Feed, feed, receivers
from integration.topic_rows import event_ids, records_of, select_rows, topic_rows

from changefeed.errors import SettingsError, SparkFailedError
from changefeed.spark.connect import connect_session
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.port import free_port
from devstack.spark_connect import SparkConnectServer

__all__ = ["feed", "receivers"]
pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture
def spark(spark_connect: SparkConnectServer) -> str:
    return f"{{connect: '{spark_connect.url}'}}"


def test_a_dag_publishes_through_spark_connect(feed: Feed) -> None:
    assert feed.do("run") == SKIPPED
    for rows in (2, 300):
        feed.mysql.execute(
            "CREATE TABLE IF NOT EXISTS orders (id INT AUTO_INCREMENT PRIMARY KEY, note TEXT)",
            *["INSERT INTO orders (note) VALUES (REPEAT('x', 50)), ('é')"] * rows,
            "FLUSH BINARY LOGS",
            "UPDATE orders SET note = 'y' WHERE id = 1",
            database=feed.database,
        )
        assert feed.do("run") == IN_FULL
        assert topic_rows(feed.records("orders")) == select_rows(feed.mysql, feed.database, "orders")
    published = event_ids(feed.records("orders"))
    assert len(published) == len(set(published)), "no event twice"
    assert "spark-submit" not in feed.runner.text()


@pytest.mark.parametrize("token", ["", "/;token=another"])
def test_server_with_a_token_runs_nothing_for_whoever_has_none(spark_connect: SparkConnectServer, token: str) -> None:
    with (
        pytest.raises(SettingsError, match=r"token.*SPARK_CONNECT_AUTHENTICATE_TOKEN"),
        connect_session(f"sc://localhost:{spark_connect.port}{token}"),
    ):
        pass


END_IN_MID_JOB = """
import os, signal, sys, time
from pathlib import Path
from changefeed.spark.connect import connect_session

def end(*_):
    raise SystemExit(143)

def beat(batches):
    for _ in range(6000):
        Path(sys_argv[2]).touch()
        time.sleep(0.1)
    yield from batches

sys_argv = sys.argv
signal.signal(signal.SIGTERM, end)
with connect_session(sys_argv[1]) as spark:
    spark.session.range(0, 1, 1, 1).mapInArrow(beat, "id long").collect()
"""


def test_job_of_a_process_that_is_ended_ends_on_the_server(spark_connect: SparkConnectServer, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    process = subprocess.Popen([sys.executable, "-c", END_IN_MID_JOB, spark_connect.url, str(beat)])
    deadline = time.monotonic() + 120
    while not beat.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.terminate()
    assert process.wait(240) == 143
    deadline = time.monotonic() + 240  # Spark ends the worker of a cancelled task after 2 seconds
    while beat.exists():
        assert time.monotonic() < deadline, "the task continues"
        beat.unlink()
        time.sleep(2)


def test_command_uses_the_connect_server_and_reports_one_that_is_down(
    spark_connect: SparkConnectServer,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    unique_name: str,
    database: str,
    server_id: int,
) -> None:
    env = {
        **os.environ,
        "CHANGEFEED_PIPELINES": str(tmp_path),
        "AIRFLOW_CONN_MYSQL_X": mysql_server.url,
        "AIRFLOW_CONN_KAFKA_X": f"kafka://{kafka_broker.bootstrap}",
        "AIRFLOW_CONN_STATE_X": f"sqlite:///{tmp_path / 'state.db'}",
    }

    def run(url: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "x.yaml").write_text(f"""\
name: {unique_name}
source: {{connection: mysql_x, server_ids: {server_id}-{server_id + 9}}}
kafka: {{connection: kafka_x}}
tables: {{include: ['{database}.*']}}
checkpoint: {{store: table, connection: state_x}}
start: latest
spark: {{connect: '{url}'}}
""")
        command = [sys.executable, "-m", "changefeed.cli.main", "run", unique_name]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert run(spark_connect.url).returncode == 3
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a'), (2, NULL)", database=database
    )
    away = run(f"sc://127.0.0.1:{free_port()}")
    assert away.returncode == 1
    assert "SparkUnavailableError" in away.stderr
    done = run(spark_connect.url)
    assert done.returncode == 0, done.stderr
    assert topic_rows(records_of(kafka_broker.bootstrap, f"{database}.t")) == select_rows(mysql_server, database, "t")


def test_runs_share_a_session_and_its_workers_until_the_server_ends_it(
    spark_connect: SparkConnectServer,
) -> None:
    def parent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"id": [os.getppid()]})

    def run(end: bool = False) -> tuple[str, int]:
        """The session of a run, and the parent process of its worker."""
        with connect_session(spark_connect.url) as spark:
            spark.warm_up(1)()
            session: Any = spark.session
            daemon = session.range(0, 1, 1, 1).mapInArrow(parent, "id long").collect()[0].id
            spark.keep_connected()
            if end:
                session.client.release_session()
                with pytest.raises(SparkFailedError, match="SESSION_CLOSED"):
                    spark.keep_connected()
            return session.session_id, daemon

    first, daemon = run()
    assert run() == (first, daemon)
    with connect_session(f"{spark_connect.url};session_id={uuid.uuid4()}") as own:
        assert cast(Any, own.session).session_id != first
    assert run(end=True) == (first, daemon)
    second, other = run()
    assert second != first
    assert other != daemon
    assert run() == (second, other)


def test_a_daemon_without_workers_ends_by_itself_and_one_with_a_worker_stays() -> None:
    code = """
import os, signal, time
from changefeed.spark.daemon import end_when_idle
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: (print("ended", len(lived)), os._exit(0)))
lived = []
if os.fork() == 0:
    time.sleep(1.5)
    os._exit(0)
end_when_idle(0.2)
while True:
    lived.append(time.sleep(0.1))
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "include")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=240, check=True
    )
    word, lived = done.stdout.split()
    assert word == "ended"
    assert int(lived) >= 5, "as long as its child lived, half a second at the least"
