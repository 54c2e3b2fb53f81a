"""Rows of outbox tables as messages: topic, key, value and headers out of columns, as Debezium's event router does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from integration.binlog_of import Binlog, binlog_of
from integration.rebuilt import records_of
from integration.test_routing import Runs, pipeline_of
from pyspark.sql import SparkSession

from changefeed.binlog.decoder import KernelDecoder
from changefeed.block import Block, Message
from changefeed.coordinates import FIRST_POSITION
from changefeed.errors import BadRecordError, SettingsError
from changefeed.partition import partition_of
from changefeed.pipelines.column_rules import ALL_SHOWN
from changefeed.pipelines.pipeline import Pipeline
from changefeed.transforms.finisher import TransformFinisher
from changefeed.transforms.outbox import OutboxTable
from changefeed.transforms.outbox_columns import OutboxByColumns
from changefeed.window import Slice
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

TABLE = """
CREATE TABLE outbox (
  id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
  type VARCHAR(255) NOT NULL, payload JSON
)
"""


def published(records: list[Any]) -> list[tuple[bytes, bytes | None, dict[str, bytes]]]:
    """Key, value, and headers besides the event id and GTID."""
    own = ("changefeed.id", "changefeed.gtid")
    return [
        (record.key, record.value, {name: value for name, value in record.headers if name not in own})
        for record in records
    ]


def test_a_row_is_a_message_of_the_topic_that_its_aggregate_names_and_its_delete_is_none(
    spark: SparkSession, mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    name, mysql = unique_name, mysql_server
    outbox = {
        "tables": [f"{name}.outbox"],
        "route.topic.replacement": f"{name}.event.${{routedByValue}}",
        "table.fields.additional.placement": "type:header:eventType, aggregatetype:header",
    }
    runs = Runs(spark, mysql, kafka_broker, pipeline_of(name, outbox=outbox, topics={"partitions": 2}), tmp_path)
    runs.run()
    mysql.execute(
        f"CREATE DATABASE `{name}`",
        f"USE `{name}`",
        TABLE,
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "BEGIN",
        "INSERT INTO orders VALUES (7)",
        """INSERT INTO outbox VALUES ('e-1', 'order', '7', 'OrderCreated', '{"id": 7, "name": "Zoë"}')""",
        "INSERT INTO outbox VALUES ('e-2', 'customer', 'ann', 'Seen', NULL), ('e-3', 'order', '7', 'Paid', '[1]')",
        "DELETE FROM outbox",
        "COMMIT",
    )
    (manifest,) = runs.run()
    orders = records_of(kafka_broker.bootstrap, f"{name}.event.order")
    first, second = published(orders)
    assert (first[0], json.loads(first[1] or b""), first[2]) == (
        b"7",
        {"id": 7, "name": "Zoë"},
        {"id": b"e-1", "eventType": b"OrderCreated", "aggregatetype": b"order"},
    )
    assert second == (b"7", b"[1]", {"id": b"e-3", "eventType": b"Paid", "aggregatetype": b"order"})
    assert {record.partition for record in orders} == {partition_of(b"7", b"", 2)}
    ((key, value, headers),) = published(records_of(kafka_broker.bootstrap, f"{name}.event.customer"))
    assert (key, value, headers["id"]) == (b"ann", None, b"e-2")
    assert [json.loads(record.value)["op"] for record in records_of(kafka_broker.bootstrap, f"{name}.orders")] == ["c"]
    assert records_of(kafka_broker.bootstrap, f"{name}.outbox") == []
    assert manifest.transformed_away == {"outbox": 3}


def messages_of(
    server: MysqlServer, database: str, pipeline: Pipeline, *statements: str, dead_letters: str | None = None
) -> list[tuple[str, Message]]:
    server.execute("FLUSH BINARY LOGS")
    (name, *_) = server.execute("SHOW BINARY LOGS")[-1]
    server.execute(*statements, "FLUSH BINARY LOGS", database=database)
    data = (server.data / name).read_bytes()
    format, rules = pipeline.message_format(0), pipeline.column_rules({}.__getitem__)
    outbox = pipeline.outbox
    finisher = TransformFinisher((), format, rules, lambda _topic: 3, dead_letters=dead_letters, outbox=outbox)

    def route(database: str, table: str) -> Any:
        found = pipeline.route(database, table)
        return found.route if found else None

    decoder = KernelDecoder(route, lambda *_: None, format, "uuid", columns=rules, finisher=finisher)
    blocks = decoder.decode([data[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data)))
    return [(block.topic, message) for block in blocks if isinstance(block, Block) for message in block.messages()]


OTHER = "CREATE TABLE events (n INT PRIMARY KEY, kind TEXT, about VARBINARY(9), body LONGBLOB)"
OPTIONS = {
    "tables": ["*.events"],
    "table.field.event.id": "n",
    "table.field.event.key": "about",
    "table.field.event.payload": "body",
    "route.by.field": "kind",
    "route.topic.replacement": "to.${routedByValue}",
    "route.tombstone.on.empty.payload": True,
}


def test_columns_are_those_that_the_options_name_and_bytes_are_bytes(mysql_server: MysqlServer, database: str) -> None:
    pipeline = pipeline_of(database, outbox=OPTIONS)
    insert = "INSERT INTO events VALUES (1, 'a', X'00ff', X'80'), (2, 'b', NULL, ''), (3, 'a', 'k', NULL)"
    found = messages_of(mysql_server, database, pipeline, OTHER, insert)
    parts = {message.headers[0][1]: (topic, message.key, message.value) for topic, message in found}
    assert parts == {
        b"1": ("to.a", b"\x00\xff", b"\x80"),
        b"2": ("to.b", None, None),
        b"3": ("to.a", b"k", None),
    }


def test_an_update_is_passed_over_or_stops_the_run_as_the_option_says(mysql_server: MysqlServer, database: str) -> None:
    statements = (OTHER, "INSERT INTO events VALUES (1, 'a', 'k', 'v')", "UPDATE events SET body = 'w'")
    assert len(messages_of(mysql_server, database, pipeline_of(database, outbox=OPTIONS), *statements)) == 1
    strict = pipeline_of(database, outbox={**OPTIONS, "table.op.invalid.behavior": "error"})
    with pytest.raises(BadRecordError, match="a row of an outbox was updated"):
        messages_of(mysql_server, database, strict, "UPDATE events SET body = 'x'")


def test_a_row_without_a_topic_stops_the_run_or_is_a_dead_letter(mysql_server: MysqlServer, database: str) -> None:
    pipeline = pipeline_of(database, outbox=OPTIONS)
    with pytest.raises(BadRecordError, match=r"'kind' is NULL"):
        messages_of(mysql_server, database, pipeline, OTHER, "INSERT INTO events VALUES (1, NULL, 'k', 'v')")
    insert = "INSERT INTO events VALUES (2, NULL, 'k', 'v')"
    ((topic, letter),) = messages_of(mysql_server, database, pipeline, insert, dead_letters="dead")
    assert (topic, letter.key, letter.value) == ("dead", None, None)


def test_a_column_that_the_table_does_not_have_or_that_is_left_out_stops_the_run(
    mysql_server: MysqlServer, database: str
) -> None:
    pipeline = pipeline_of(database, outbox={**OPTIONS, "route.by.field": "kid"})
    with pytest.raises(SettingsError, match=r"outbox takes column 'kid' of .*mean 'kind'"):
        messages_of(mysql_server, database, pipeline, OTHER, "INSERT INTO events VALUES (1, 'a', 'k', 'v')")
    pipeline = pipeline_of(database, outbox=OPTIONS, columns={"exclude": ["*.events.body"]})
    with pytest.raises(SettingsError, match=r"column 'body' of .* is left out"):
        messages_of(mysql_server, database, pipeline, "INSERT INTO events VALUES (2, 'a', 'k', 'v')")


MANY = (
    "CREATE TABLE events (n BIGINT UNSIGNED PRIMARY KEY, kind VARCHAR(20), about TEXT, shard INT, more VARCHAR(300), "
    "raw VARBINARY(9), body JSON)",
    *(
        f"INSERT INTO events VALUES ({number}, '{'odd' if number % 2 else 'even'}', "
        f"{'NULL' if number % 5 == 0 else repr(f'ann {number % 7}')}, {number % 3 if number % 4 else 'NULL'}, "
        f"{'NULL' if number % 3 == 0 else f'REPEAT(CHAR(9, 34), {number * 3})'}, "
        f"{'NULL' if number % 6 == 0 else 'X' + repr('00ff')}, "
        f"{'NULL' if number % 8 == 0 else repr(f'[{number}]')})"
        for number in range(40)
    ),
    "INSERT INTO events VALUES (18446744073709551615, 'Größe', '', 0, '', '', '\"\"')",
    "DELETE FROM events WHERE n < 5",
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"table.fields.additional.placement": "more:header,n:header:number,raw:header,body:header:again"},
        {"table.fields.additional.placement": "shard:partition", "route.tombstone.on.empty.payload": True},
        {"table.field.event.payload": "more", "route.tombstone.on.empty.payload": True},
        {
            "table.fields.additional.placement": "nothing:header,more:header",
            "table.fields.additional.error.on.missing": False,
        },
        {"table.field.event.payload": "raw", "table.field.event.key": "raw"},
        {"route.topic.regex": "(od|ev)(?<end>.*)", "route.topic.replacement": "to.$1-${end}"},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_rows_become_the_same_messages_by_columns_as_one_by_one(
    mysql_server: MysqlServer, database: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    outbox = {
        "tables": ["*.events"],
        "table.field.event.id": "n",
        "table.field.event.key": "about",
        "table.field.event.payload": "body",
        "route.by.field": "kind",
        **options,
    }
    pipeline = pipeline_of(database, outbox=outbox)
    binlog = binlog_of(mysql_server, database, *MANY)
    with monkeypatch.context() as patch:
        patch.setattr(OutboxByColumns, "finished", lambda *_: None)
        one_by_one = by_partition(binlog, pipeline)
    monkeypatch.setattr(OutboxTable, "finished", None)
    assert by_partition(binlog, pipeline) == one_by_one
    assert sum(map(len, one_by_one.values())) == 41


def by_partition(binlog: Binlog, pipeline: Pipeline) -> dict[tuple[str, int], list[Message]]:
    format, made = pipeline.message_format(0), dict[tuple[str, int], list[Message]]()
    finisher = TransformFinisher((), format, ALL_SHOWN, lambda _topic: 3, outbox=pipeline.outbox)
    for block in binlog.blocks(format, finisher=finisher):
        made.setdefault((block.topic, block.partition), []).extend(block.messages())
    assert finisher.taken_counts() == {"outbox": 5}
    return made
