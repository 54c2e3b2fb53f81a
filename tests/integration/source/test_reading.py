"""Readers of the source: their names, their number, their rate limit, and heartbeats while it is idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from changefeed.binlog.events.framing import EventType
from changefeed.ingest.window_run import ingest
from changefeed.model.connection import MysqlConnection
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, SparkSettings, TableSettings
from changefeed.settings.topic_settings import TopicSettings
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

ROWS, ROW_BYTES, FILES = 120, 100_000, 3
BYTES_PER_SECOND = 4_000_000

on_both = pytest.mark.parametrize("server_fixture", ["mysql_server", "mariadb_server"])


@pytest.fixture
def server(request: pytest.FixtureRequest, server_fixture: str) -> SqlServer:
    server: SqlServer = request.getfixturevalue(server_fixture)
    return server


class Watched:
    """The names in ``server``'s list of replicas, read again and again."""

    def __init__(self, server: SqlServer) -> None:
        self._server, self._ended = server, threading.Event()
        self.replicas: set[str] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        replicas = "SHOW SLAVE HOSTS" if isinstance(self._server, MariadbServer) else "SHOW REPLICAS"
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not self._ended.wait(0.02):
                cursor.execute(replicas)
                self.replicas |= {row[1] for row in cursor.fetchall()}


@on_both
def test_tasks_have_a_reader_name_and_obey_the_rate_limit(
    spark: SparkTarget, server: SqlServer, kafka_broker: KafkaBroker, unique_name: str, server_id: int, tmp_path: Path
) -> None:
    server.execute(f"CREATE DATABASE {unique_name}", "FLUSH BINARY LOGS")
    (file, *_) = server.execute(server.status_statement)[0]
    server.execute(f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY, a LONGTEXT)")
    for number in range(FILES):
        rows = range(number * ROWS // FILES, (number + 1) * ROWS // FILES)
        values = ", ".join(f"({row}, REPEAT('x', {ROW_BYTES}))" for row in rows)
        server.execute(f"INSERT INTO {unique_name}.t VALUES {values}", "FLUSH BINARY LOGS")
    uris = {"mysql": server.url, "kafka": f"kafka://{kafka_broker.bootstrap}"}
    pipeline = Pipeline(
        name=unique_name,
        source=SourceSettings.model_validate(
            {
                "connection": "mysql",
                "server_ids": f"{server_id}-{server_id + 1}",
                "register": True,
                "max_bytes_per_second": BYTES_PER_SECOND,
            }
        ),
        kafka=KafkaSettings(connection="kafka"),
        tables=TableSettings(include=[f"{unique_name}.*"]),
        topics=TopicSettings(partitions=2),
        start=f"{file}:4",
        spark=SparkSettings(master="local[2]", slice_bytes=1 << 20),
    )
    connections = PipelineConnections(pipeline, uris.__getitem__)
    window = plan(connections, TableCheckpointStore(f"sqlite:///{tmp_path / 'state.db'}")).window
    watched, begun = Watched(server), time.monotonic()
    with watched.watching():
        manifest = ingest(spark, connections, window)
    spent = time.monotonic() - begun
    assert manifest.row_count == ROWS
    assert f"changefeed/{unique_name}" in watched.replicas
    assert spent > 0.9 * ROWS * ROW_BYTES / BYTES_PER_SECOND
    server.execute(f"DROP DATABASE {unique_name}")


@pytest.mark.parametrize("bytes_per_second", [500_000, 5_000_000])
def test_reader_stays_below_its_limit_in_each_second(mysql_server: SqlServer, bytes_per_second: int) -> None:
    """However fast the server sends, and also after its consumer was busy for a while."""
    mysql_server.execute("FLUSH BINARY LOGS", "DROP DATABASE IF EXISTS reading", "CREATE DATABASE reading")
    (file, *_) = mysql_server.execute(mysql_server.status_statement)[0]
    values = ", ".join(["(REPEAT('x', 2000))"] * (3 * bytes_per_second // 2000))
    mysql_server.execute("CREATE TABLE reading.t (a LONGTEXT)", f"INSERT INTO reading.t VALUES {values}")
    end = int(mysql_server.execute(mysql_server.status_statement)[0][1])
    session = Session(MysqlConnection.from_uri(mysql_server.url))
    dump = DumpStream(session, file=file, start=4, end=end, max_bytes_per_second=bytes_per_second)
    arrivals: list[tuple[float, int]] = []
    for number, chunk in enumerate(dump):
        arrivals.append((time.monotonic(), len(chunk)))
        if number == 3:
            time.sleep(1.5)
    assert sum(size for _, size in arrivals) == end - 4
    for begin, _ in arrivals:
        of_second = sum(size for at, size in arrivals if begin <= at < begin + 1)
        assert of_second <= 1.5 * bytes_per_second, "a burst; a little more is the delay of this process"
    mysql_server.execute("DROP DATABASE reading")


@on_both
def test_events_read_without_kernels_have_the_bytes_of_the_dump(server: SqlServer, unique_name: str) -> None:
    server.execute(f"CREATE DATABASE {unique_name}", "FLUSH BINARY LOGS")
    file, middle = server.head().split(":")
    large = "REPEAT('x', 9000000), REPEAT('y', 9000000)"  # an event of several packets
    server.execute(f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY, a LONGTEXT, b LONGTEXT)")
    server.execute(f"INSERT INTO {unique_name}.t VALUES (1, {large}), (2, 'a', 'b')", "FLUSH BINARY LOGS")
    size = next(int(row[1]) for row in server.execute("SHOW BINARY LOGS") if row[0] == file)
    for start, end in ((4, size), (int(middle), size), (4, int(middle)), (int(middle), int(middle))):
        events, chunks = (
            DumpStream(Session(MysqlConnection.from_uri(server.root_url)), file=file, start=start, end=end)
            for _ in range(2)
        )
        read = list(events.events())
        assert b"".join(read) == b"".join(chunks)
        assert all(int.from_bytes(event[9:13], "little") == len(event) for event in read)
    server.execute(f"DROP DATABASE {unique_name}")


@on_both
def test_idle_server_sends_heartbeats_as_often_as_it_was_asked_to(server: SqlServer, server_id: int) -> None:
    file, position = server.head().split(":")
    session = Session(MysqlConnection.from_uri(server.root_url))
    dump = DumpStream(session, file=file, start=int(position), end=1 << 40, server_id=server_id, heartbeat_seconds=1)
    with session:
        dump._prepare(session)
        dump._request(session.raw, 0)  # blocking: at the end of the binlog the server waits, and does not end the dump
        kinds = [_event_kind(session.raw) for _ in range(5)]
    assert kinds.count(EventType.HEARTBEAT) >= 2


def _event_kind(raw: Any) -> int:
    header = raw._rfile.read(4)
    body = raw._rfile.read(int.from_bytes(header[:3], "little"))
    assert body[0] == 0
    return int(body[1 + 4])
