"""Where names come with the rows and nobody wants records of definitions, no run waits for the schemas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.ddl import Table
from changefeed.ddl.names import TableName
from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline import schema_history, schema_learning
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, SparkSettings, TableSettings
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.topic_settings import TopicSettings
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.topics import read_topics

pytestmark = pytest.mark.extended


@pytest.fixture
def full_server(spare_server: MysqlServer) -> Iterator[MysqlServer]:
    """A server that logs FULL metadata, and may be set to stop that."""
    (before,) = spare_server.execute("SELECT @@GLOBAL.binlog_row_metadata")[0]
    spare_server.execute("SET GLOBAL binlog_row_metadata = FULL")
    yield spare_server
    spare_server.execute(f"SET GLOBAL binlog_row_metadata = {before}")


def new_connections(
    name: str, mysql: MysqlServer, kafka: KafkaBroker, slice_bytes: int = 1 << 20
) -> PipelineConnections:
    """A pipeline that begins in a new file, before its database is created; a window is a file."""
    mysql.execute("FLUSH BINARY LOGS")
    (file, *_) = mysql.execute("SHOW BINARY LOG STATUS")[0]
    pipeline = Pipeline(
        name=name,
        source=SourceSettings(connection="mysql"),
        kafka=KafkaSettings(connection="kafka"),
        tables=TableSettings(include=[f"{name}.*"]),
        topics=TopicSettings(partitions=2),
        start=f"{file}:4",
        spark=SparkSettings(slice_bytes=slice_bytes),
        publish_ddl="off",
        format=FormatChoice.model_validate({"name": "debezium", "skipped.operations": "none"}),
        window_bytes=1,
    )
    mysql.execute(f"CREATE DATABASE `{name}`", f"CREATE TABLE `{name}`.t (id INT PRIMARY KEY, text VARCHAR(300))")
    return PipelineConnections(pipeline, {"mysql": mysql.url, "kafka": f"kafka://{kafka.bootstrap}"}.__getitem__)


def run(spark: SparkTarget, connections: PipelineConnections, state: Path) -> int:
    """Publish what is new; return how many windows that were."""
    store = TableCheckpointStore(f"sqlite:///{state}")
    return len(list(run_windows(spark, connections, cut(connections, plan(connections, store), RunBounds()), store)))


def published(kafka: KafkaBroker, name: str) -> list[dict[str, object]]:
    rows = [record.value["after"] for record in read_topics(kafka.bootstrap, [f"{name}.t"]) if record.value["after"]]
    return sorted(rows, key=lambda row: int(row["id"]))


def test_backlog_is_published_before_schemas_are_learned_at_its_end(
    spark: SparkTarget,
    full_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts: list[BinlogCoordinates] = []
    learn_history = schema_learning.learn_history

    def recorded(*args: object) -> object:
        starts.append(args[2])  # type: ignore[arg-type]
        return learn_history(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(schema_history, "learn_history", recorded)
    mysql, name, state = full_server, unique_name, tmp_path / "state.db"
    connections = new_connections(name, mysql, kafka_broker)
    for number in range(3):
        mysql.execute(f"INSERT INTO `{name}`.t VALUES ({number}, 'a')", f"TRUNCATE `{name}`.t", "FLUSH BINARY LOGS")
    assert run(spark, connections, state) == 4, "a file each, and the beginning of another"
    (head, *_) = mysql.execute("SHOW BINARY LOG STATUS")[0]
    assert starts
    assert all(start.number >= BinlogCoordinates(head, 4).number - 1 for start in starts), "of what is published"
    history = schema_history.load_history(connections)
    assert history is not None
    assert isinstance(history.timeline.latest.tables[TableName(name, "t")], Table)
    starts.clear()
    mysql.execute(f"ALTER TABLE `{name}`.t ADD COLUMN more INT", f"INSERT INTO `{name}`.t VALUES (9, 'b', 1)")
    assert run(spark, connections, state) == 1
    assert starts == []
    history = schema_history.load_history(connections)
    assert history is not None
    table = history.timeline.latest.tables[TableName(name, "t")]
    assert isinstance(table, Table)
    assert [column.name for column in table.schema.columns] == ["id", "text", "more"]
    assert published(kafka_broker, name)[-1] == {"id": 9, "text": "b", "more": 1}
    truncates = [record for record in read_topics(kafka_broker.bootstrap, [f"{name}.t"]) if record.value["op"] == "t"]
    assert len(truncates) == 3 * 2, "one a partition"


@pytest.mark.parametrize("slice_bytes", [1 << 20, 3_000])
def test_rows_that_came_without_names_are_read_with_schemas_learned_after_all(
    spark: SparkTarget,
    full_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    slice_bytes: int,
) -> None:
    mysql, name = full_server, unique_name
    connections = new_connections(name, mysql, kafka_broker, slice_bytes)
    expected: list[dict[str, object]] = []
    for metadata in ("FULL", "MINIMAL", "FULL"):
        mysql.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
        for _ in range(20):
            expected.append({"id": len(expected), "text": "x" * 200})
            mysql.execute(f"INSERT INTO `{name}`.t VALUES ({expected[-1]['id']}, REPEAT('x', 200))")
    assert run(spark, connections, tmp_path / "state.db") == 1
    assert published(kafka_broker, name) == expected
    history = schema_history.load_history(connections)
    assert history is not None
    assert isinstance(history.timeline.latest.tables[TableName(name, "t")], Table)
