"""More slices than ids, a backfill and look-ups in the same binlog at once: no reader ends another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.ingest.window_run import ingest
from changefeed.operations.check import check
from changefeed.operations.finding import Level
from changefeed.operations.neighbours import Neighbours
from changefeed.operations.seek import plan_seek
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, SparkSettings, TableSettings
from changefeed.settings.topic_settings import TopicSettings
from changefeed.source.mysql.dump import DumpStream
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

ROWS, ROW_BYTES = 140, 300_000
SLICE_BYTES = 12 << 20
"""More than a connection's buffers hold: the dump of a slice is under way for as long as the slice is decoded."""


@pytest.fixture
def filled(mysql_server: MysqlServer, database: str) -> str:
    """40 MB in one binlog file."""
    with mysql_server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT)")
        cursor.execute("FLUSH BINARY LOGS")
        for start in range(0, ROWS, 20):
            values = ", ".join(f"({number}, REPEAT('x', {ROW_BYTES}))" for number in range(start, start + 20))
            cursor.execute(f"INSERT INTO t VALUES {values}")
    return database


def test_no_reader_ends_another_with_few_server_ids(
    spark: SparkTarget,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    filled: str,
    unique_name: str,
    server_id: int,
    tmp_path: Path,
) -> None:
    (file, *_) = mysql_server.execute("SHOW BINARY LOG STATUS")[0]
    uris = {"mysql": mysql_server.url, "kafka": f"kafka://{kafka_broker.bootstrap}"}

    def reading_with(server_ids: str) -> PipelineConnections:
        pipeline = Pipeline(
            name=unique_name,
            source=SourceSettings(connection="mysql", server_ids=server_ids),
            kafka=KafkaSettings(connection="kafka"),
            tables=TableSettings(include=[f"{filled}.*"]),
            topics=TopicSettings(partitions=2),
            start=f"{file}:4",
            spark=SparkSettings(master="local[2]", slice_bytes=SLICE_BYTES),
            publish_ddl="off",
        )
        return PipelineConnections(pipeline, uris.__getitem__)

    connections, alone = reading_with(f"{server_id}-{server_id + 1}"), Neighbours({}, uris.__getitem__)
    store = TableCheckpointStore(f"sqlite:///{tmp_path / 'state.db'}")
    window = plan(connections, store).window
    assert window.head.position > 3 * SLICE_BYTES
    found = [finding.text for finding in check(connections, alone, lambda: store)]
    assert f"server_ids {server_id}-{server_id + 1}: 2 for 2 tasks at once" in found

    ended = threading.Event()

    def look() -> int:
        looks = 0
        while not ended.is_set():
            assert plan_seek(connections, "latest", store).repeated_bytes == 0
            dump = DumpStream(connections.session(), file=file, start=4, end=window.head.position)
            assert sum(map(len, dump)) == window.head.position - 4
            looks += 1
        return looks

    with ThreadPoolExecutor(3) as threads:
        looking = threads.submit(look)
        try:
            runs = [
                threads.submit(ingest, spark, connections, window, identity=identity)
                for identity in (None, f"{unique_name}.backfill.a")
            ]
            manifests = [run.result() for run in runs]
        finally:
            ended.set()
        assert looking.result() > 0
    assert [manifest.row_count for manifest in manifests] == [ROWS, ROWS]

    few = reading_with(f"{server_id}-{server_id}")
    wrong = [finding.text for finding in check(few, alone, lambda: store) if finding.level is Level.FAIL]
    assert any("1 ids, and Spark runs 2 tasks at once" in message for message in wrong), wrong
    with pytest.raises(SettingsError, match="1 ids, and Spark runs 2 tasks at once"):
        ingest(spark, few, window)
