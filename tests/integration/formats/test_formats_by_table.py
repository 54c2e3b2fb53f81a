"""Formats by table: what one pipeline writes in several formats is, of each table, what it has in that format alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from integration.command import Command
from integration.kafka_pipeline import committed

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import SettingsError, TopicError
from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.window import Slice
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.records.block import Message, MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.routes import compile_routes
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from changefeed.transforms.finisher import TransformFinisher
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.schema_registry import SchemaRegistry
from devstack.topics import read_topics

pytestmark = pytest.mark.extended

FORMATS: dict[str, Any] = {
    "plain": {
        "name": "debezium",
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "include.query": True,
    },
    "connect": {"name": "debezium", "schemas": True, "include.query": True},
    "maxwell": {"name": "maxwell", "output_row_query": True, "output_gtid_position": True},
    "fluvio": {"name": "fluvio"},
    "avro": {"name": "avro", "registry": "r", "include.query": True},
}
"""By table the format of its own."""


def pipeline_of(name: str, **settings: Any) -> Pipeline:
    plain = {"name": name, "source": {"connection": "s"}, "kafka": {"connection": "k"}, "start": "latest"}
    return Pipeline.model_validate({**plain, "tables": {"include": [f"{name}.*"]}, **settings})


def routes(**formats: Any) -> dict[str, Any]:
    """`topics` with a format for each table."""
    return {"routes": [{"match": f"*.{table}", "format": format} for table, format in formats.items()]}


class OneId:
    """A registry in which each schema has the same id."""

    def of_table(self, *_: object) -> int:
        return 7

    def of_statements(self, *_: object) -> int:
        return 7


Decode = Callable[[Pipeline], dict[str, list[Message]]]


@pytest.fixture
def decode(full_mysql_server: MysqlServer, database: str) -> Decode:
    """By table the messages of the same changes to each of them, in binlog order."""
    columns = "id INT PRIMARY KEY, email VARCHAR(50), price DECIMAL(9, 2), at DATETIME(3), kind ENUM('a', 'b')"
    full_mysql_server.execute(
        "FLUSH BINARY LOGS", *(f"CREATE TABLE {table} ({columns})" for table in FORMATS), database=database
    )
    (name, *_) = full_mysql_server.execute("SHOW BINARY LOGS")[-1]
    changes = [
        "INSERT INTO {} VALUES (1, 'a@b', 1.50, '2026-01-31 12:00:00.250', 'b'), (2, NULL, NULL, NULL, NULL)",
        "UPDATE {} SET price = 2.25, kind = 'a' WHERE id = 1",
        "UPDATE {} SET id = 3 WHERE id = 2",
        "DELETE FROM {} WHERE id = 1",
    ]
    full_mysql_server.execute(
        "SET SESSION binlog_rows_query_log_events = ON",
        *(change.format(table) for change in changes for table in FORMATS),
        "XA START 'one'",
        *(f"INSERT INTO {table} (id) VALUES (9)" for table in FORMATS),
        "XA END 'one'",
        "XA COMMIT 'one' ONE PHASE",
        "FLUSH BINARY LOGS",
        database=database,
    )
    data = (full_mysql_server.data / name).read_bytes()

    def decoded(pipeline: Pipeline) -> dict[str, list[Message]]:
        def route(database: str, table: str) -> Any:
            found = compile_routes(pipeline).of(database, table)
            return found.route if found else None

        format = compile_routes(pipeline).format(0, OneId())
        rules, calls = pipeline.column_rules({}.__getitem__), pipeline.transform_calls({}.__getitem__)
        finisher = TransformFinisher(calls, format, rules, lambda _topic: 3) if calls else None
        decoder = KernelDecoder(route, lambda *_: None, format, "uuid", columns=rules, finisher=finisher)
        window_slice = Slice(0, name, FIRST_POSITION, len(data))
        found: dict[str, list[Message]] = {}
        for block in decoder.decode([data[FIRST_POSITION:]], window_slice):
            if isinstance(block, MessageBlock):
                found.setdefault(block.topic.rpartition(".")[2], []).extend(block.messages())
        return {
            table: sorted(messages, key=lambda message: (message.position, message.sequence))
            for table, messages in found.items()
        }

    return decoded


TRANSFORM = {"tables": "*.*", "function": "rename", "arguments": {"columns": {"price": "cost"}}}


@pytest.mark.parametrize(
    "settings",
    [
        {"headers": ["table", "mysql_binlog_headers"]},
        {"columns": {"mask": {"*.*.email": {"text": "hidden"}}, "exclude": ["*.*.kind"]}},
        {"transforms": [TRANSFORM], "keys": {"*.*": ["email", "id"]}},
    ],
)
@pytest.mark.parametrize("usual", ["plain", "avro"])
def test_several_formats_in_one_pipeline_equal_each_format_alone(
    decode: Decode, database: str, settings: dict[str, Any], usual: str
) -> None:
    own = {table: format for table, format in FORMATS.items() if table != usual}
    mixed = decode(pipeline_of(database, format=FORMATS[usual], topics=routes(**own), **settings))
    assert mixed.keys() == FORMATS.keys()
    for table, format in FORMATS.items():
        assert mixed[table] == decode(pipeline_of(database, format=format, **settings))[table], table


def test_statement_is_in_each_notation_that_supports_it(decode: Decode, database: str) -> None:
    mixed = decode(pipeline_of(database, topics=routes(**FORMATS)))
    texts = {"plain": True, "connect": True, "maxwell": True, "fluvio": False, "avro": True}
    statement_texts = {
        table: b"UPDATE %b SET price = 2.25" % table.encode() in messages[2].value for table, messages in mixed.items()
    }
    assert statement_texts == texts
    assert [len(messages) for messages in mixed.values()] == [9, 9, 6, 5, 9]  # fluvio: both rows of an event in one


def test_tables_that_share_a_topic_by_what_the_server_has_are_refused_in_two_formats() -> None:
    by_group = {"match": r"/shop\.(\w+)_\d/", "topic": "{1}"}
    pipeline = pipeline_of("shop", topics={"routes": [{"match": "shop.a_2", "topic": "a", "format": "flat"}, by_group]})
    assert len(compile_routes(pipeline).route_tables([("shop", "a_2"), ("shop", "b_1")])) == 2
    with pytest.raises(
        TopicError, match=r"`a_1` and `shop`.`a_2` share topic 'a', and are written as 'deb.*' and 'flat'"
    ):
        compile_routes(pipeline).route_tables([("shop", "a_1"), ("shop", "a_2")])


def test_window_with_several_formats_writes_each_table_in_its_format(
    spark: SparkTarget,
    full_mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    schema_registry: SchemaRegistry,
    unique_name: str,
    tmp_path: Path,
) -> None:
    name, formats = unique_name, {"m": "maxwell", "f": "fluvio"}
    uris = {"s": full_mysql_server.url, "k": f"kafka://{kafka_broker.bootstrap}", "r": schema_registry.url}
    store = TableCheckpointStore(f"sqlite:///{tmp_path / 'state.db'}")

    def run(pipeline: Pipeline) -> None:
        connections = PipelineConnections(pipeline, uris.__getitem__)
        planned = cut(connections, plan(connections, store), RunBounds())
        list(run_windows(spark, connections, planned, store))

    usual = {"name": "debezium", "skipped.operations": "none"}
    inline = pipeline_of(name, format=usual, topics={**routes(**formats), "partitions": 1}, publish_ddl="inline")
    run(inline)
    tables = "d", "m", "f"
    full_mysql_server.execute(
        f"CREATE DATABASE `{name}`",
        f"USE `{name}`",
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY)" for table in tables),
        *(f"INSERT INTO {table} VALUES (1)" for table in tables),
        "RENAME TABLE m TO m2, m2 TO m",
        *(f"TRUNCATE {table}" for table in tables),
    )
    run(inline)
    values = {
        table: [record.value for record in read_topics(kafka_broker.bootstrap, [f"{name}.{table}"])] for table in tables
    }
    assert [value.get("op", "ddl" in value) for value in values["d"]] == [True, "c", True, "t"]
    assert [value["type"] for value in values["m"]] == ["table-create", "insert", "table-alter", "table-alter"]
    assert [next(iter(value["operation"])) for value in values["f"]] == ["Query", "Add", "Query"]
    changes = [record.value for record in read_topics(kafka_broker.bootstrap, [f"changefeed.{name}.schema-changes"])]
    assert ["ddl" in change for change in changes] == [True] * 8, "in the pipeline's format"

    avro = pipeline_of(name, format=usual, topics={**routes(d=FORMATS["avro"], **formats), "partitions": 1})
    full_mysql_server.execute(*(f"INSERT INTO {table} VALUES (2)" for table in tables), database=name)
    run(avro)
    read = AvroDeserializer(SchemaRegistryClient({"url": schema_registry.url}))
    last = list(committed(kafka_broker.bootstrap, f"{name}.d"))[-1]
    assert read(last.value, SerializationContext(f"{name}.d", MessageField.VALUE))["after"] == {"id": 2}
    subjects = SchemaRegistryClient({"url": schema_registry.url}).get_subjects()
    assert {subject for subject in subjects if name in subject} == {f"{name}.d-key", f"{name}.d-value"}
    insert = json.loads(list(committed(kafka_broker.bootstrap, f"{name}.m"))[-1].value)
    assert (insert["type"], insert["data"]) == ("insert", {"id": 2})


def test_check_and_explain_name_the_format_of_each_table(changefeed: Command) -> None:
    database, name = changefeed.database, changefeed.name
    changefeed.write("")
    path = changefeed.pipelines / f"{name}.yaml"
    route = f"{{match: '{database}.m', format: {{name: maxwell, output_nulls: false}}}}"
    path.write_text(path.read_text().replace("{partitions: 2}", f"{{partitions: 2, routes: [{route}]}}"))
    creates = [f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)" for table in "dm"]
    changefeed.server.execute(*creates, "INSERT INTO m (id) VALUES (1)", database=database)
    checked = changefeed("check").out
    assert f"{database}.m: topic '{database}.m', 2 partitions by key; key id; format maxwell" in checked
    assert f"{database}.d: topic '{database}.d', 2 partitions by key; key id; format debezium" in checked
    explained = changefeed("explain", f"{database}.m", "--pipeline", name).out
    assert f'key: {{"database":"{database}","table":"m","pk.id":1}}' in explained
    assert '"data":{"id":1}' in explained


def test_a_format_that_a_table_cannot_have_is_refused_with_its_setting() -> None:
    with pytest.raises(ValueError, match="expected one format in a topic"):
        pipeline_of("p", topics={"shared": True, "template": "all", **routes(a="maxwell")})
    with pytest.raises(SettingsError, match="unknown format"):
        compile_routes(pipeline_of("p")).build_format(pipeline_of("p").format.model_copy(update={"name": "x"}))
