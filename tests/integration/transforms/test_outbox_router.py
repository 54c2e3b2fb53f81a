"""Outbox rows beside Debezium's connector with its event router, on the same range of a binlog."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from integration.binlog_of import Binlog, binlog_of
from integration.debezium_connector import LAST_TABLE, BinlogRange, records_of
from integration.settings.test_routing import pipeline_of

from changefeed.model.column_rules import ALL_SHOWN
from changefeed.records.block import Message
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.transforms.finisher import TransformFinisher
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

pytestmark = pytest.mark.extended

PLACED = "table.fields.additional.placement"
EXPAND = "table.expand.json.payload"
JSON_VALUE = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
TEXT_VALUE = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
ROUTER: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "plain": (TEXT_VALUE, {}),
    "headers": (TEXT_VALUE, {PLACED: "type:header:eventType,priority:header,aggregatetype:header:of"}),
    "envelope": (JSON_VALUE, {PLACED: "type:envelope:eventType,priority:envelope,shard:partition,type:header"}),
    "expanded": (JSON_VALUE, {EXPAND: True, PLACED: "type:envelope"}),
    "bare": (JSON_VALUE, {EXPAND: True, "table.json.payload.null.behavior": "optional_bytes"}),
    "tombstones": (
        TEXT_VALUE,
        {"route.tombstone.on.empty.payload": True, "route.by.field": "type", "table.field.event.key": "id"},
    ),
    "rerouted": (TEXT_VALUE, {"route.topic.regex": "(?<first>[a-z])([a-z]+)"}),
}
TOPICS = {"rerouted": "$2.${first}"}
TABLE = """CREATE TABLE outbox (
  id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255),
  type VARCHAR(255) NOT NULL, priority INT, shard INT NOT NULL, payload JSON
)"""
ROWS = (
    "INSERT INTO outbox VALUES ('e-1', 'order', '7', 'Created', 5, 0, "
    """'{"id": 7, "name": "Zoë \\\\"x\\\\"", "no": null}')""",
    "INSERT INTO outbox VALUES ('e-2', 'customer', 'ann', 'Seen', -1, 0, '{\"list\": [1, 2, 3]}')",
    "INSERT INTO outbox VALUES ('e-3', 'order', '7', 'Paid', NULL, 0, "
    """'{"a": {"b": [1.5, 2.25], "c": true}, "d": 9007199254740993}')""",
    "UPDATE outbox SET type = 'Later' WHERE id = 'e-1'",
    "DELETE FROM outbox WHERE id = 'e-2'",
    "INSERT INTO outbox VALUES ('e-4', 'order', '8', 'Gone', 1, 0, NULL)",
)


def test_messages_are_those_of_debeziums_event_router(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    full_mysql_server.execute(f"CREATE DATABASE {unique_name}")
    file, position, *_, gtids = full_mysql_server.execute("SHOW BINARY LOG STATUS")[0]
    last = (f"CREATE TABLE {LAST_TABLE} (n INT PRIMARY KEY)", f"INSERT INTO {LAST_TABLE} VALUES (1)")
    binlog = binlog_of(full_mysql_server, unique_name, TABLE, *ROWS, *last)
    connectors = {
        f"{unique_name}-{name}": {
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            **converter,
            "predicates": "outbox",
            "predicates.outbox.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
            "predicates.outbox.pattern": ".*[.]outbox",
            "transforms": "router",
            "transforms.router.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.router.predicate": "outbox",
            **{f"transforms.router.{option}": str(value).lower() if value in (True, False) else value
               for option, value in options.items()},
            "transforms.router.route.topic.replacement": topic_of(f"{unique_name}-{name}", name),
        }
        for name, (converter, options) in ROUTER.items()
    }  # fmt: skip
    binlog_range = BinlogRange(unique_name, file, position, gtids.replace("\n", ""))
    theirs = records_of(tmp_path / "connect", full_mysql_server, kafka_broker, binlog_range, connectors)
    for name, (_, options) in ROUTER.items():
        connector = f"{unique_name}-{name}"
        outbox = {"tables": ["*.outbox"], **options, "route.topic.replacement": topic_of(connector, name)}
        found = [
            (each.topic, each.key, read(each.value), own(each.headers))
            for each in theirs[connector]
            if not each.topic.endswith(LAST_TABLE)
        ]
        ours = [
            (topic, message.key, read(message.value), dict(message.headers))
            for topic, message in made(binlog, pipeline_of(unique_name, outbox=outbox))
            if not topic.endswith(LAST_TABLE)
        ]
        assert sorted(ours, key=str) == sorted(found, key=str), name


def topic_of(connector: str, name: str) -> str:
    return f"{connector}.{TOPICS.get(name, '${routedByValue}')}"


def own(headers: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Without those of the connector and without null ones, which have no header here."""
    return {
        name: value
        for name, value in headers.items()
        if value is not None and not name.startswith("__debezium.context.")
    }


def read(value: bytes | None) -> Any:
    """A payload is JSON, which Debezium spells without spaces."""
    return None if value is None else json.loads(value)


def made(binlog: Binlog, pipeline: Pipeline) -> Iterator[tuple[str, Message]]:
    format = compile_routes(pipeline).format(0)
    finisher = TransformFinisher((), format, ALL_SHOWN, lambda _topic: 1, outbox=pipeline.outbox)
    for block in binlog.blocks(format, finisher=finisher):
        yield from ((block.topic, message) for message in block.messages())
