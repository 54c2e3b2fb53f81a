"""Routing: shared topics, partitions by table or columns, and missing topics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.command import Command

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import SettingsError, TopicError
from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.kafka.schema_log import schema_history_settings
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics, partition_counts
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.manifest import Manifest
from changefeed.model.window import Slice
from changefeed.operations.check import check
from changefeed.operations.finding import Finding, Level
from changefeed.operations.neighbours import Neighbours
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.records.block import Message, MessageBlock
from changefeed.records.partition import partition_of
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.routes import compile_routes
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.topics import read_topics


def pipeline_of(name: str, **settings: Any) -> Pipeline:
    plain = {"name": name, "source": {"connection": "s"}, "kafka": {"connection": "k"}, "start": "latest"}
    return Pipeline.model_validate({**plain, "tables": {"include": [f"{name}.*"]}, **settings})


Decode = Callable[..., list[tuple[str, int, Message]]]


@pytest.fixture
def decode(full_mysql_server: MysqlServer, database: str) -> Decode:
    """Topic, partition and message of each change by ``statements``, in binlog order."""

    def decoded(pipeline: Pipeline, *statements: str) -> list[tuple[str, int, Message]]:
        full_mysql_server.execute("FLUSH BINARY LOGS")
        (name, *_) = full_mysql_server.execute("SHOW BINARY LOGS")[-1]
        full_mysql_server.execute(*statements, "FLUSH BINARY LOGS", database=database)
        data = (full_mysql_server.data / name).read_bytes()

        def route(database: str, table: str) -> Any:
            found = compile_routes(pipeline).of(database, table)
            return found.route if found else None

        decoder = KernelDecoder(route, lambda *_: None, compile_routes(pipeline).format(0), "uuid")
        window_slice = Slice(0, name, FIRST_POSITION, len(data))
        blocks = [
            item for item in decoder.decode([data[FIRST_POSITION:]], window_slice) if isinstance(item, MessageBlock)
        ]
        found = [(block.topic, block.partition, message) for block in blocks for message in block.messages()]
        return sorted(found, key=lambda one: (one[2].position, one[2].sequence))

    return decoded


def after(message: Message) -> Any:
    return message.value and json.loads(message.value)["after"]


def test_shards_share_a_topic_with_the_table_in_row_and_key(decode: Decode, database: str) -> None:
    route = {"match": rf"/{database}\.orders_\d+/", "topic": "{database}.orders", "table_field": "__table"}
    found = decode(
        pipeline_of(database, topics={"routes": [route], "partitions": 1}),
        "CREATE TABLE orders_1 (id INT PRIMARY KEY, a INT, b INT)",
        "CREATE TABLE orders_2 (id INT PRIMARY KEY)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO orders_1 VALUES (1, 2, 3)",
        "INSERT INTO orders_2 VALUES (1)",
        "INSERT INTO other VALUES (1)",
        "UPDATE orders_1 SET a = 4",
        "UPDATE orders_2 SET id = 5",
    )
    topic, one, two = f"{database}.orders", f"{database}.orders_1", f"{database}.orders_2"
    assert [topic for topic, _, _ in found] == [topic, topic, f"{database}.other", *[topic] * 4]
    assert [json.loads(message.key or b"null") for _, _, message in found] == [
        {"__table": one, "id": 1},
        {"__table": two, "id": 1},
        {"id": 1},
        {"__table": one, "id": 1},
        {"__table": two, "id": 1},
        {"__table": two, "id": 1},
        {"__table": two, "id": 5},
    ]
    assert after(found[0][2]) == {"id": 1, "a": 2, "b": 3, "__table": one}
    assert json.loads(found[3][2].value or b"")["before"] == {"id": 1, "a": 2, "b": 3, "__table": one}


@pytest.mark.extended
def test_table_field_may_be_in_the_row_only_and_not_equal_a_column(decode: Decode, database: str) -> None:
    topics = {"table_field": "source", "table_in_key": False}
    create, insert = "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)"
    ((_, _, message),) = decode(pipeline_of(database, topics=topics), create, insert)
    assert (message.key, after(message)) == (b'{"id":7}', {"id": 7, "source": f"{database}.t"})
    with pytest.raises(SettingsError, match="has a column 'ID' itself"):
        decode(pipeline_of(database, topics={"table_field": "ID"}), "INSERT INTO t VALUES (8)")


@pytest.mark.extended
def test_partition_by_table_gives_each_table_one_partition(decode: Decode, database: str) -> None:
    topics = {"partition_by": "table", "partitions": 50}
    creates = [f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in "ab"]
    inserts = [f"INSERT INTO {name} VALUES (1), (2), (3)" for name in "abab"[:2]]
    found = decode(pipeline_of(database, topics=topics), *creates, *inserts, "CREATE TABLE bare (n INT)")
    partitions = {topic: {partition for of, partition, _ in found if of == topic} for topic, _, _ in found}
    assert partitions == {f"{database}.{name}": {partition_of(f"{database}.{name}".encode(), b"", 50)} for name in "ab"}


@pytest.mark.extended
def test_partition_column_chooses_the_partition_and_its_update_moves_the_row(decode: Decode, database: str) -> None:
    topics = {"partition_by": ["Customer"], "partitions": 50}
    found = decode(
        pipeline_of(database, topics=topics),
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, n INT)",
        "CREATE TABLE visits (customer INT, page INT)",
        "INSERT INTO orders VALUES (1, 7, 0), (2, 7, 0), (3, 8, 0)",
        "INSERT INTO visits VALUES (7, 1), (7, 2)",
        "UPDATE orders SET n = 1 WHERE id = 1",
        "UPDATE orders SET customer = 8 WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    seven, eight = (partition_of(b'{"customer":%d}' % customer, b"", 50) for customer in (7, 8))
    ops = [message.value and json.loads(message.value)["op"] for _, _, message in found]
    partitions = [partition for _, partition, _ in found]
    assert list(zip(ops, partitions, strict=True)) == [
        *[("c", seven), ("c", seven), ("c", eight)],
        *[("c", seven), ("c", seven), ("u", seven)],
        *[("d", seven), (None, seven), ("c", eight)],
        *[("d", seven), (None, seven)],
    ]
    assert found[3][2].key is None
    with pytest.raises(SettingsError, match=r"partition_by in topics chooses column 'custmer' of .*mean 'customer'"):
        decode(pipeline_of(database, topics={"partition_by": ["custmer"]}), "INSERT INTO orders VALUES (9, 9, 9)")


class Runs:
    """A pipeline that is run window by window."""

    def __init__(self, spark: SparkTarget, mysql: MysqlServer, kafka: KafkaBroker, pipeline: Pipeline, folder: Path):
        uris = {"s": mysql.url, "k": f"kafka://{kafka.bootstrap}"}
        self.lookup = uris.__getitem__
        self.connections = PipelineConnections(pipeline, self.lookup)
        self._spark, self._store = spark, TableCheckpointStore(f"sqlite:///{folder / 'state.db'}")

    def run(self) -> list[Manifest]:
        planned = cut(self.connections, plan(self.connections, self._store), RunBounds())
        return list(run_windows(self._spark, self.connections, planned, self._store))


@pytest.mark.extended
def test_statement_is_once_in_a_shared_topic_with_an_own_id(
    spark: SparkTarget, mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    name, mysql = unique_name, mysql_server
    route = {"match": f"{name}.s_*", "topic": "{database}.all", "partitions": 1, "configs": {"retention.ms": "99999"}}
    pipeline = pipeline_of(
        name,
        topics={"routes": [route], "partitions": 2},
        publish_ddl="inline",
        format={"name": "debezium", "skipped.operations": "none"},
    )
    runs = Runs(spark, mysql, kafka_broker, pipeline, tmp_path)
    runs.run()
    mysql.execute(
        f"CREATE DATABASE `{name}`",
        f"USE `{name}`",
        "CREATE TABLE s_1 (id INT PRIMARY KEY)",
        "CREATE TABLE s_2 (id INT PRIMARY KEY)",
        "CREATE TABLE own (id INT PRIMARY KEY)",
        "INSERT INTO s_1 VALUES (1)",
        "INSERT INTO s_2 VALUES (2)",
        "INSERT INTO own VALUES (3)",
        "TRUNCATE s_1",
        "TRUNCATE s_2",
        "DROP TABLE s_1, s_2",
    )
    (manifest,) = runs.run()
    assert partition_counts(runs.connections.kafka, [f"{name}.all", f"{name}.own"]) == {
        f"{name}.all": 1,
        f"{name}.own": 2,
    }
    records = list(read_topics(kafka_broker.bootstrap, [f"{name}.all"]))
    values = [record.value.get("ddl") or (record.value["op"], record.value["source"]["table"]) for record in records]
    assert values == [
        "CREATE TABLE s_1 (id INT PRIMARY KEY)",
        "CREATE TABLE s_2 (id INT PRIMARY KEY)",
        ("c", "s_1"),
        ("c", "s_2"),
        "TRUNCATE s_1",
        ("t", "s_1"),
        "TRUNCATE s_2",
        ("t", "s_2"),
        "DROP TABLE `s_1`,`s_2` /* generated by server */",
    ]
    assert max(Counter(record.event_id for record in records).values()) == 1
    assert manifest.rows == {f"{name}.own": {"c": 1}, f"{name}.s_1": {"c": 1}, f"{name}.s_2": {"c": 1}}


@pytest.mark.extended
def test_missing_topics_that_may_not_be_created_stop_the_run_first(
    spark: SparkTarget, full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    name = unique_name
    pipeline = pipeline_of(name, topics={"create": False, "partitions": 2}, publish_ddl="off")
    runs = Runs(spark, full_mysql_server, kafka_broker, pipeline, tmp_path)
    full_mysql_server.execute(f"CREATE DATABASE `{name}`", f"CREATE TABLE `{name}`.t (id INT PRIMARY KEY)")
    own = [f"changefeed.{name}.commits", f"changefeed.{name}.schema-history"]
    with pytest.raises(TopicError, match=r"3 topics are not in the cluster.*`topics.create: false`") as refused:
        plan(runs.connections, runs._store)
    assert all(repr(topic) in str(refused.value) for topic in (f"{name}.t", *own))

    def findings() -> list[Finding]:
        return list(check(runs.connections, Neighbours({}, runs.lookup), lambda: runs._store))

    assert [each.text for each in findings() if each.level is Level.FAIL] == [f"TopicError: {refused.value}"]
    logs = {own[0]: commit_log_settings(1), own[1]: schema_history_settings(1)}
    ensure_topics(runs.connections.kafka, {f"{name}.t": TopicSettings(1, 1), **logs})
    assert "3 topics: all exist, none would be created" in [each.text for each in findings()]
    plan(runs.connections, runs._store)
    full_mysql_server.execute(f"INSERT INTO `{name}`.t VALUES (1)")
    runs.run()
    assert [record.key for record in read_topics(kafka_broker.bootstrap, [f"{name}.t"])] == [{"id": 1}]


@pytest.mark.extended
def test_filtered_rows_are_counted_and_excluded_tables_stop_no_run(
    spark: SparkTarget, full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    name, mysql = unique_name, full_mysql_server
    tables = {"include": [rf"/{name}\.\w+/"], "exclude": [f"{name}.left_*"]}
    settings = {"rows": {"*.orders": "status = 'paid'"}, "skip": ["d", "t"], "topics": {"partitions": 1}}
    runs = Runs(spark, mysql, kafka_broker, pipeline_of(name, tables=tables, **settings), tmp_path)
    runs.run()
    mysql.execute(
        f"CREATE DATABASE `{name}`",
        f"USE `{name}`",
        "CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(9))",
        "INSERT INTO orders VALUES (1, 'paid'), (2, 'draft'), (3, NULL)",
        "CREATE TABLE left_a (id INT PRIMARY KEY) AS SELECT 1 AS id, 2 AS n",  # its columns are not known
        "ALTER TABLE left_a ADD COLUMN g GEOMETRY",
        "INSERT INTO left_a (id) VALUES (7)",
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE left_a SET n = 9 WHERE id > 0",
        "SET SESSION binlog_format = ROW",
        "UPDATE orders SET status = 'paid' WHERE id = 3",
        "DELETE FROM orders WHERE id = 1",
        "TRUNCATE orders",
    )
    (manifest,) = runs.run()
    assert (manifest.rows, manifest.skipped_rows) == ({f"{name}.orders": {"c": 1, "u": 1}}, 2)
    assert manifest.filtered == {f"{name}.orders": {"c": 2, "d": 1}}
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
    values = [
        (record.value["op"], record.key["id"]) for record in read_topics(kafka_broker.bootstrap, [f"{name}.orders"])
    ]
    assert values == [("c", 1), ("u", 3)]


@pytest.mark.extended
def test_check_and_explain_show_topic_and_key_of_each_table(changefeed: Command) -> None:
    database, name = changefeed.database, changefeed.name
    changefeed.mask = ""
    route = f"{{match: '{database}.o*', topic: all, partitions: 5, partition_by: [n], table_field: from}}"
    changefeed.write(
        "keys: {'*.orders': [id, n]}\nheaders: [table]\nrows: {'*.orders': id > 1}\n"
        "columns: {exclude: ['*.*.secret'], mask: {'*.*.email': {text: hidden}}}\n"
        "transforms: [{tables: '*.orders', function: rename, arguments: {columns: {note: remark}}}]\n"
    )
    path = changefeed.pipelines / f"{name}.yaml"
    path.write_text(path.read_text().replace("{partitions: 2}", f"{{partitions: 2, routes: [{route}]}}"))
    changefeed.server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, n INT, email TEXT, secret TEXT, note TEXT)",
        "CREATE TABLE plain (n INT)",
        "INSERT INTO orders VALUES (1, 1, 'a@b', 'x', ''), (2, 7, 'c@d', 'y', 'z')",
        database=database,
    )
    line = (
        f"{database}.orders: topic 'all', 5 partitions by n; key from, id, n; format debezium; without secret; "
        "masked email; some rows by a condition; through rename"
    )
    checked = changefeed("check")
    assert checked.exit_code == 0, checked
    assert line in checked.out
    assert f"{database}.plain: topic '{database}.plain', 2 partitions by key; key none; format" in checked.out
    explained = changefeed("explain", f"{database}.orders", "--pipeline", name).out.splitlines()
    assert explained[0] == line
    sample = explained[explained.index("a message:") + 1 :]
    assert sample[0] == f'  key: {{"from":"{database}.orders","id":2,"n":7}}'
    after = json.loads(sample[1].removeprefix("  value: "))["after"]
    assert after == {"id": 2, "n": 7, "email": "hidden", "remark": "z", "from": f"{database}.orders"}
    assert sample[2:] == [f"  header table: {database}.orders"]
    changefeed("explain", f"{database}x.orders", "--pipeline", name).is_refused("SettingsError", "does not capture")


@pytest.mark.extended
@pytest.mark.parametrize("server", ["changefeed", "spare"])
def test_explain_shows_rows_after_the_last_ddl(server: str, request: pytest.FixtureRequest) -> None:
    """With and without names of columns in the binlog."""
    command: Command = request.getfixturevalue(server)
    table = f"{command.database}.orders"

    def explained() -> str:
        return command("explain", table, "--pipeline", command.name).out

    def shown() -> Any:
        text = explained()
        assert "  value: " in text, text
        line = next(line for line in text.splitlines() if line.startswith("  value: "))
        return json.loads(line.removeprefix("  value: "))["after"]

    command.server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, n INT)", "INSERT INTO orders VALUES (1, 1)", database=command.database
    )
    assert shown() == {"id": 1, "n": 1}
    for number, statement in enumerate(("DROP COLUMN n, ADD COLUMN first VARCHAR(9) FIRST", "ADD INDEX (first)"), 2):
        command.server.execute(f"ALTER TABLE {table} {statement}")
        assert explained().splitlines()[0].startswith(f"{table}: topic")
        assert "it has no rows after its DDL" in explained()
        command.server.execute(f"INSERT INTO {table} VALUES ('a', {number})")
        assert shown() == {"first": "a", "id": number}
