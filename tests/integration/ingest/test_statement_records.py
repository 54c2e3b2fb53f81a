"""Statements as records, through Spark into Kafka: schema changes, truncates, changes in statement format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from changefeed.errors import SourceError
from changefeed.ingest.commit import commit
from changefeed.ingest.window_run import ingest
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.column_settings import ColumnSettings
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, TableSettings
from changefeed.settings.topic_settings import TopicSettings
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.topics import Record, read_topics


class Runner:
    """One pipeline on the stock server, run window by window."""

    def __init__(self, spark: SparkTarget, mysql: MysqlServer, kafka: KafkaBroker, pipeline: Pipeline, state: Path):
        uris = {"mysql": mysql.url, "kafka": f"kafka://{kafka.bootstrap}"}
        self._spark, self.connections = spark, PipelineConnections(pipeline, uris.__getitem__)
        self.store = TableCheckpointStore(f"sqlite:///{state}")
        self._bootstrap = kafka.bootstrap

    def window(self) -> None:
        planned = plan(self.connections, self.store)
        ingest(self._spark, self.connections, planned.window)
        commit(self.connections, planned.window, planned.expected, self.store)

    def records(self, *topics: str) -> list[Record]:
        return list(read_topics(self._bootstrap, topics))

    def checkpoint(self) -> str:
        found = self.store.load(self.connections.pipeline.name)
        return str(found.coordinates) if found else ""


def pipeline_of(name: str, server_id: int, **settings: object) -> Pipeline:
    return Pipeline(
        name=name,
        source=SourceSettings(connection="mysql", server_ids=f"{server_id}-{server_id + 8}"),
        kafka=KafkaSettings(connection="kafka"),
        tables=TableSettings(include=[f"{name}.*"]),
        topics=TopicSettings(partitions=2),
        start="latest",
        **settings,  # type: ignore[arg-type]  # the test's own
    )


def test_ddl_records_are_between_the_rows_around_them_in_each_partition(
    spark: SparkTarget,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    tmp_path: Path,
) -> None:
    name, mysql = unique_name, mysql_server
    pipeline = pipeline_of(
        name,
        server_id,
        publish_ddl="inline",
        statements="publish",
        format={"name": "debezium", "skipped.operations": "none"},
    )
    runner = Runner(spark, mysql, kafka_broker, pipeline, tmp_path / "state.db")
    plan(runner.connections, runner.store)  # the first checkpoint, before any change
    mysql.execute(
        f"CREATE DATABASE `{name}`",
        f"USE `{name}`",
        "CREATE TABLE a (id INT PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO a VALUES (1, 'one'), (2, 'two')",
        "ALTER TABLE a ADD COLUMN extra INT FIRST, RENAME COLUMN name TO title",
        "INSERT INTO a VALUES (7, 3, 'three')",
        "TRUNCATE a",
        "INSERT INTO a VALUES (8, 4, 'four')",
        "CREATE TABLE b LIKE a",
        "RENAME TABLE b TO c",
        "INSERT INTO c VALUES (1, 1, 'later')",
        "DROP TABLE c",
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE a SET extra = 5 WHERE id > 0",
        "FLUSH BINARY LOGS",
    )
    runner.window()
    values_read: dict[int, list[object]] = {0: [], 1: []}
    for record in runner.records(f"{name}.a"):
        value = record.value
        values_read[record.partition].append(value.get("ddl") or value.get("sql") or (value["op"], value["after"]))
    definitions = [
        "CREATE TABLE a (id INT PRIMARY KEY, name VARCHAR(20))",
        "ALTER TABLE a ADD COLUMN extra INT FIRST, RENAME COLUMN name TO title",
        "TRUNCATE a",
        ("t", None),
        "UPDATE a SET extra = 5 WHERE id > 0",
    ]
    rows = {
        0: [("c", {"id": 1, "name": "one"}), ("c", {"id": 2, "name": "two"})],
        1: [("c", {"extra": 7, "id": 3, "title": "three"})],
        3: [("c", {"extra": 8, "id": 4, "title": "four"})],
    }
    for partition in values_read.values():
        assert [one for one in partition if one in definitions] == definitions
    together = [one for partition in values_read.values() for one in partition]
    for after, changes in rows.items():
        for change in changes:
            (home,) = [partition for partition in values_read.values() if change in partition]
            assert home.index(definitions[after]) < home.index(change) < home.index(definitions[after + 1])
            assert together.count(change) == 1
    defined = runner.records(f"changefeed.{name}.schema-changes")
    assert [record.value["kind"] for record in defined] == [
        "CREATE", "CREATE", "ALTER", "TRUNCATE", "CREATE", "RENAME", "DROP",
    ]  # fmt: skip
    altered = defined[2].value["tableChanges"][0]["table"]
    assert [column["name"] for column in altered["columns"]] == ["extra", "id", "title"]
    assert altered["primaryKeyColumnNames"] == ["id"]
    renamed = [record.value for record in runner.records(f"{name}.c") if record.value.get("op")]
    assert [value["after"] for value in renamed] == [{"extra": 1, "id": 1, "title": "later"}]
    ids = [record.event_id for record in (*defined, *runner.records(f"{name}.a"))]
    assert len(ids) == len(set(ids))


@pytest.mark.extended
def test_ddl_is_known_across_files_if_the_binlog_has_column_names(
    spark: SparkTarget, full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    name = unique_name
    pipeline = Pipeline(
        name=name,
        source=SourceSettings(connection="mysql"),
        kafka=KafkaSettings(connection="kafka"),
        tables=TableSettings(include=[f"{name}.*"]),
        start="latest",
        publish_ddl="inline",
    )
    runner = Runner(spark, full_mysql_server, kafka_broker, pipeline, tmp_path / "state.db")
    full_mysql_server.execute(f"CREATE DATABASE `{name}`")
    runner.window()
    full_mysql_server.execute(
        f"CREATE TABLE `{name}`.t (id INT PRIMARY KEY)",
        "FLUSH BINARY LOGS",
        f"ALTER TABLE `{name}`.t ADD a INT",
        "FLUSH BINARY LOGS",
        f"ALTER TABLE `{name}`.t ADD b INT",
        f"INSERT INTO `{name}`.t VALUES (1, 2, 3)",
    )
    runner.window()
    values = [record.value for record in runner.records(f"{name}.t") if record.partition == 0]
    columns = [
        [column["name"] for column in change["table"]["columns"]]
        for value in values
        for change in value.get("tableChanges", ())
    ]
    assert columns == [["id"], ["id", "a"], ["id", "a", "b"]]


@pytest.mark.extended
def test_a_statement_record_has_the_binlog_events_header(
    spark: SparkTarget,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    tmp_path: Path,
) -> None:
    name, mysql = unique_name, mysql_server
    mysql.execute(f"CREATE DATABASE `{name}`", f"CREATE TABLE `{name}`.a (id INT PRIMARY KEY)")
    mysql.execute(f"CREATE TABLE `{name}`.b (id INT PRIMARY KEY)")
    pipeline = pipeline_of(name, server_id, statements="publish", headers=["mysql_binlog_headers"])
    runner = Runner(spark, mysql, kafka_broker, pipeline, tmp_path / "state.db")
    plan(runner.connections, runner.store)
    mysql.execute("SET SESSION binlog_format = STATEMENT", f"INSERT INTO `{name}`.a VALUES (1), (2)")
    runner.window()
    consumer = KafkaConsumer(bootstrap_servers=kafka_broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(f"{name}.a", 0)])
    consumer.seek_to_beginning()
    (record,) = next(iter(consumer.poll(timeout_ms=20_000).values()))
    consumer.close()
    header = json.loads(dict(record.headers)["mysql_binlog_headers"])
    file, _, position = runner.checkpoint().rpartition(":")
    assert header["event_type"] == 2
    assert header["log_file"] == file
    assert header["log_pos"] < int(position)
    assert json.loads(record.value)["sql"] == f"INSERT INTO `{name}`.a VALUES (1), (2)"
    assert runner.records(f"{name}.b") == []


@pytest.mark.extended
def test_a_statement_record_has_no_sql_where_columns_are_hidden(
    spark: SparkTarget,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    tmp_path: Path,
) -> None:
    name, mysql = unique_name, mysql_server
    mysql.execute(f"CREATE DATABASE `{name}`", f"CREATE TABLE `{name}`.a (id INT PRIMARY KEY, email TEXT)")
    columns = ColumnSettings(exclude=[f"{name}.*.email"])
    pipeline = pipeline_of(name, server_id, statements="publish", columns=columns)
    runner = Runner(spark, mysql, kafka_broker, pipeline, tmp_path / "state.db")
    plan(runner.connections, runner.store)
    mysql.execute(f"INSERT INTO `{name}`.a VALUES (1, 's3cr3t')")
    mysql.execute("SET SESSION binlog_format = STATEMENT", f"INSERT INTO `{name}`.a VALUES (2, 's3cr3t')")
    runner.window()
    values_read = [
        (record.value["op"], record.value["after"], record.value.get("sql")) for record in runner.records(f"{name}.a")
    ]
    assert ("c", {"id": 1}, None) in values_read
    assert ("q", None, None) in values_read
    assert "s3cr3t" not in json.dumps(values_read)


@pytest.mark.extended
def test_a_change_in_statement_format_stops_the_run_and_names_the_setting(
    spark: SparkTarget,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    tmp_path: Path,
) -> None:
    name, mysql = unique_name, mysql_server
    mysql.execute(f"CREATE DATABASE `{name}`", f"CREATE TABLE `{name}`.a (id INT PRIMARY KEY)")
    pipeline = pipeline_of(name, server_id)
    runner = Runner(spark, mysql, kafka_broker, pipeline, tmp_path / "state.db")
    plan(runner.connections, runner.store)
    before = runner.checkpoint()
    mysql.execute("SET SESSION binlog_format = STATEMENT", f"INSERT INTO `{name}`.a VALUES (1)")
    with pytest.raises(SourceError, match=r"binlog_format = 'ROW'"):
        runner.window()
    assert runner.checkpoint() == before
    assert runner.records(f"{name}.a") == []


@pytest.mark.extended
def test_shared_topic_has_each_statement_once_and_all_in_commit_order(
    spark: SparkTarget,
    full_mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    tmp_path: Path,
) -> None:
    name, topic = unique_name, f"{unique_name}-events"
    topics = TopicSettings(template=topic, shared=True, partitions=1)
    pipeline = pipeline_of(name, server_id, publish_ddl="inline", format={"name": "fluvio"}, headers=["table", "op"])
    pipeline = pipeline.model_copy(update={"topics": topics})
    runner = Runner(spark, full_mysql_server, kafka_broker, pipeline, tmp_path / "state.db")
    plan(runner.connections, runner.store)
    statements = [
        "CREATE TABLE a (n INT)",
        "CREATE TABLE b (n INT)",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (2)",
        "RENAME TABLE a TO c, b TO a",
        "INSERT INTO a VALUES (3)",
        "TRUNCATE a",
        "INSERT INTO c VALUES (4)",
    ]
    full_mysql_server.execute(f"CREATE DATABASE `{name}`", f"USE `{name}`", *statements)
    runner.window()
    seen: list[object] = []
    for record in runner.records(topic):
        operation = record.value["operation"]
        if "Query" in operation:
            seen.append(operation["Query"])
        else:
            (row,) = operation["Add"]["rows"]
            seen.append((record.value["uri"].rpartition("/")[2], row["cols"]))
    assert seen == [
        f"CREATE DATABASE `{name}`",
        *statements[:2],
        ("a", [{"SignedInteger": 1}]),
        ("b", [{"SignedInteger": 2}]),
        statements[4],
        ("a", [{"SignedInteger": 3}]),
        statements[6],
        ("c", [{"SignedInteger": 4}]),
    ]
