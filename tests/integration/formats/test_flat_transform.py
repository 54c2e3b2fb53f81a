"""`flat` beside Debezium's connector with its transform ExtractNewRecordState, on the same range of a binlog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from integration.binlog_of import binlog_of
from integration.debezium_connector import LAST_TABLE, BinlogRange, records_of

from changefeed.formats.format import FormatSettings
from changefeed.formats.registry import format_of
from changefeed.records.block import Header
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

pytestmark = pytest.mark.extended

FIELDS = "op,table,db:origin,source.ts_ms,source.server_id,gtid,file,pos,row,snapshot,connector,source.name"
OPTIONS: dict[str, dict[str, str]] = {
    "plain": {},
    "drop": {"delete.tombstone.handling.mode": "drop", "add.fields": FIELDS, "add.fields.prefix": "_"},
    "rewrite": {
        "delete.tombstone.handling.mode": "rewrite",
        "add.fields": FIELDS,
        "add.headers": "op,db,pos,source.name",
    },
    "both": {"delete.tombstone.handling.mode": "rewrite-with-tombstone", "add.headers": "op,db", "add.fields": "op"},
    "to": {"delete.tombstone.handling.mode": "delete-to-tombstone", "add.headers": "op:verb", "add.headers.prefix": ""},
}
STATEMENTS = (
    "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(50), n INT, d DATE, m DECIMAL(8,2), at DATETIME(3))",
    "CREATE TABLE keyless (n INT, name VARCHAR(50))",
    "INSERT INTO t VALUES (1, 'Zoë \"x\"', 7, '2026-01-31', -1.5, NOW(3)), (2, 'two', NULL, NULL, NULL, NULL)",
    "UPDATE t SET n = n + 1, name = NULL WHERE id = 1",
    "UPDATE t SET id = 3 WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
    "INSERT INTO keyless VALUES (1, 'a')",
    "UPDATE keyless SET n = 2",
    "DELETE FROM keyless",
    "TRUNCATE t",
    "INSERT INTO t VALUES (9, 'last', 9, NULL, 0, NULL)",
)


def test_records_are_those_of_debeziums_transform(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    full_mysql_server.execute(f"CREATE DATABASE {unique_name}")
    file, position, *_, gtids = full_mysql_server.execute("SHOW BINARY LOG STATUS")[0]
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        *STATEMENTS,
        f"CREATE TABLE {LAST_TABLE} (n INT PRIMARY KEY)",
        f"INSERT INTO {LAST_TABLE} VALUES (1)",
    )
    connectors = {
        f"{unique_name}-{name}": {
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "header.converter": "org.apache.kafka.connect.json.JsonConverter",
            "header.converter.schemas.enable": "false",
            "transforms": "flat",
            "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
            **{f"transforms.flat.{option}": value for option, value in options.items()},
        }
        for name, options in OPTIONS.items()
    }
    binlog_range = BinlogRange(unique_name, file, position, gtids.replace("\n", ""))
    theirs = records_of(tmp_path / "connect", full_mysql_server, kafka_broker, binlog_range, connectors)
    for name, options in OPTIONS.items():
        connector = f"{unique_name}-{name}"
        format = format_of("flat", FormatSettings(connector, 0, options=options))
        ours: dict[str, list[Any]] = {}
        for block in binlog.blocks(format):
            ours.setdefault(f"{connector}.{block.topic}", []).extend(
                (_json(each.key), _json(each.value), dict(map(_header, each.headers))) for each in block.messages()
            )
        found: dict[str, list[Any]] = {}
        for each in theirs[connector]:
            headers = {key: value for key, value in each.headers.items() if not key.startswith("__debezium.context.")}
            found.setdefault(each.topic, []).append((_json(each.key), _json(each.value), headers))
        assert ours.keys() == found.keys(), name
        for topic, records in ours.items():
            assert records == found[topic], (name, topic)


def _header(header: Header) -> Header:
    """As JSON, which the connector's headers are here: texts are quoted."""
    name, value = header
    return name, value if name.startswith("__debezium.") or value.isdigit() else json.dumps(value.decode()).encode()


def _json(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)
