"""Rows of outbox tables as messages: topic, key, value and headers out of columns, as Debezium's event router does."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from integration.binlog_of import Binlog, binlog_of
from integration.settings.test_routing import Runs, pipeline_of
from integration.topic_rows import records_of

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import BadRecordError, SettingsError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.column_rules import ALL_SHOWN, ColumnRule, ColumnRules, Constant, FirstCharacters, Sha256
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.topic_name import check_chosen_name
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.records.partition import partition_of
from changefeed.settings.outbox_settings import OutboxColumns, OutboxSettings, Place
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.spark.target import SparkTarget
from changefeed.transforms.finisher import TransformFinisher
from changefeed.transforms.sequences import PART_BITS
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


def test_outbox_row_goes_to_the_topic_of_its_aggregate_and_delete_is_skipped(
    spark: SparkTarget, full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    name, mysql = unique_name, full_mysql_server
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
    format, rules = compile_routes(pipeline).format(0), pipeline.column_rules({}.__getitem__)
    outbox = pipeline.outbox

    def partitions(topic: str) -> int:
        check_chosen_name(topic)
        return 3

    finisher = TransformFinisher((), format, rules, partitions, dead_letters=dead_letters, outbox=outbox)

    def route(database: str, table: str) -> Any:
        found = compile_routes(pipeline).of(database, table)
        return found.route if found else None

    decoder = KernelDecoder(route, lambda *_: None, format, "uuid", columns=rules, finisher=finisher)
    blocks = decoder.decode([data[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data)))
    return [
        (block.topic, message) for block in blocks if isinstance(block, MessageBlock) for message in block.messages()
    ]


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


def test_columns_are_those_that_the_options_name_and_bytes_are_bytes(
    full_mysql_server: MysqlServer, database: str
) -> None:
    pipeline = pipeline_of(database, outbox=OPTIONS)
    insert = "INSERT INTO events VALUES (1, 'a', X'00ff', X'80'), (2, 'b', NULL, ''), (3, 'a', 'k', NULL)"
    found = messages_of(full_mysql_server, database, pipeline, OTHER, insert)
    parts = {message.headers[0][1]: (topic, message.key, message.value) for topic, message in found}
    assert parts == {
        b"1": ("to.a", b"\x00\xff", b"\x80"),
        b"2": ("to.b", None, None),
        b"3": ("to.a", b"k", None),
    }


def test_outbox_update_is_skipped_or_fails_the_run_by_option(full_mysql_server: MysqlServer, database: str) -> None:
    statements = (OTHER, "INSERT INTO events VALUES (1, 'a', 'k', 'v')", "UPDATE events SET body = 'w'")
    assert len(messages_of(full_mysql_server, database, pipeline_of(database, outbox=OPTIONS), *statements)) == 1
    strict = pipeline_of(database, outbox={**OPTIONS, "table.op.invalid.behavior": "error"})
    with pytest.raises(BadRecordError, match="a row of an outbox was updated"):
        messages_of(full_mysql_server, database, strict, "UPDATE events SET body = 'x'")


def test_a_row_without_a_topic_stops_the_run_or_is_a_dead_letter(full_mysql_server: MysqlServer, database: str) -> None:
    pipeline = pipeline_of(database, outbox=OPTIONS)
    with pytest.raises(BadRecordError, match=r"'kind' is NULL"):
        messages_of(full_mysql_server, database, pipeline, OTHER, "INSERT INTO events VALUES (1, NULL, 'k', 'v')")
    insert = "INSERT INTO events VALUES (2, NULL, 'k', 'v')"
    ((topic, letter),) = messages_of(full_mysql_server, database, pipeline, insert, dead_letters="dead")
    assert (topic, letter.key, letter.value) == ("dead", None, None)


def test_a_column_that_the_table_does_not_have_or_that_is_left_out_stops_the_run(
    full_mysql_server: MysqlServer, database: str
) -> None:
    pipeline = pipeline_of(database, outbox={**OPTIONS, "route.by.field": "kid"})
    with pytest.raises(SettingsError, match=r"outbox takes column 'kid' of .*mean 'kind'"):
        messages_of(full_mysql_server, database, pipeline, OTHER, "INSERT INTO events VALUES (1, 'a', 'k', 'v')")
    pipeline = pipeline_of(database, outbox=OPTIONS, columns={"exclude": ["*.events.body"]})
    with pytest.raises(SettingsError, match=r"column 'body' of .* is left out"):
        messages_of(full_mysql_server, database, pipeline, "INSERT INTO events VALUES (2, 'a', 'k', 'v')")


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
    "INSERT INTO events VALUES (18446744073709551615, 'big', '', 0, '', '', '\"\"')",
    "INSERT INTO events VALUES (18446744073709551614, 'big', 'Größe', 0, 'Größe', X'80', '\"Größe\"')",
    "DELETE FROM events WHERE n < 5",
)


Given = dict[tuple[str, int], list[Message]]
MASKS = ColumnRules(
    tuple(
        ColumnRule(f"*.*.{name}", how, "columns.mask")
        for name, how in {"about": Sha256("salt"), "raw": Constant("***"), "more": FirstCharacters(3)}.items()
    )
)


@pytest.fixture(scope="module")
def many(full_mysql_server: MysqlServer) -> Binlog:
    return binlog_of(full_mysql_server, "outbox_many", *MANY)


@pytest.mark.parametrize("rules", [ALL_SHOWN, MASKS], ids=["plain", "masked"])
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
        {"table.expand.json.payload": True},
        {"table.fields.additional.placement": "raw:envelope,n:envelope:number", "table.expand.json.payload": True},
        {"table.fields.additional.placement": "more:envelope", "route.tombstone.on.empty.payload": True},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_messages_of_many_rows_are_those_of_one_row_after_the_other(
    many: Binlog, options: dict[str, Any], rules: ColumnRules
) -> None:
    outbox = {
        "tables": ["*.events"],
        "table.field.event.id": "n",
        "table.field.event.key": "about",
        "table.field.event.payload": "body",
        "route.by.field": "kind",
        **options,
    }
    settings = pipeline_of(many.database, outbox=outbox).outbox
    assert settings is not None
    one_by_one = row_by_row(many, settings.columns, rules)
    assert by_partition(many, settings, rules) == one_by_one
    assert sum(map(len, one_by_one.values())) == 42


def by_partition(binlog: Binlog, outbox: OutboxSettings, rules: ColumnRules) -> Given:
    made = Given()
    finisher = TransformFinisher((), DebeziumFormat("p", 0), rules, lambda _topic: 3, outbox=outbox)
    for block in binlog.blocks(DebeziumFormat("p", 0), finisher=finisher, columns=rules):
        made.setdefault((block.topic, block.partition), []).extend(block.messages())
    assert finisher.take_drop_counts() == {"outbox": 5}
    return made


def row_by_row(binlog: Binlog, columns: OutboxColumns, rules: ColumnRules) -> Given:
    """What Debezium's documentation says of each inserted row, as the kernel writes it in JSON."""
    made = Given()
    masked = {rule.pattern.rpartition(".")[2] for rule in rules.rules}

    def text(row: dict[str, Any], name: str) -> bytes | None:
        value = row[name]
        if value is None:
            return None
        if name == "raw" and name not in masked:
            return b64decode(value)
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()

    def payload(row: dict[str, Any]) -> bytes | None:
        given = text(row, columns.payload)
        placed = {each.name: row[each.column] for each in columns.placements if each.place is Place.ENVELOPE}
        if (columns.empty_is_tombstone and not given) or (given is None and not placed):
            return None
        is_document = columns.expands_payload and given is not None and given[:1] in b"[{"
        value = json.loads(given or b"") if is_document else row[columns.payload]
        if placed:
            return compact({"payload": value, **placed})
        return compact(value) if is_document else given

    for message in binlog.messages(DebeziumFormat("p", 0), columns=rules):
        change = json.loads(message.value or b"null")
        if change is None or change["op"] != "c":
            continue
        row = change["after"]
        topic = columns.topic(row[columns.route_by])
        key = text(row, columns.key)
        statement_row = message.sequence >> 2  # each statement is one event
        partition = partition_of(key, message.event_id, 3, gtid=message.gtid, statement_row=statement_row)
        headers = [("id", text(row, columns.id))]
        for each in columns.placements:
            if each.place is Place.PARTITION and row[each.column] is not None:
                partition = row[each.column]
            elif each.place is Place.HEADER and each.column in row:
                headers.append((each.name, text(row, each.column)))
        made.setdefault((topic, partition), []).append(
            replace(
                message,
                key=key,
                value=payload(row),
                headers=tuple((name, value) for name, value in headers if value is not None),
                sequence=message.sequence << PART_BITS,
            )
        )
    return made


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_rows_that_make_no_message_leave_the_others(
    full_mysql_server: MysqlServer, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = {
        **OPTIONS,
        "table.fields.additional.placement": "shard:partition",
        "route.topic.regex": "(?<of>bad)",
        "route.topic.replacement": "x ${of}",
    }
    table = OTHER.replace("body LONGBLOB", "body LONGBLOB, shard INT")
    insert = (
        "INSERT INTO events VALUES (1, 'good', 'k', 'v', 0), (2, 'bad', 'k', 'v', 0), (3, NULL, 'k', 'v', 0), "
        "(4, 'good', 'k', 'v', 7), (5, 'good', NULL, NULL, NULL)"
    )
    pipeline = pipeline_of(database, outbox=outbox)
    found = messages_of(full_mysql_server, database, pipeline, table, insert, dead_letters="dead")
    assert sorted((topic, message.event_id.rpartition(b"/")[2]) for topic, message in found) == [
        ("dead", b"1"),
        ("dead", b"2"),
        ("dead", b"3"),
        ("good", b"0"),
        ("good", b"4"),
    ]
    for words in ("'x bad' cannot be a topic's name", "its 'kind' is NULL", "its 'shard' is '7': expected a partition"):
        assert f"{words}" in caplog.text
    assert f"of table '{database}.events' with key {{'n': 4}}" in caplog.text
