"""What each format says of statements: schema changes, TRUNCATE, and changes whose rows nobody knows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson
import pytest

from changefeed.formats.format import Format, FormatSettings, TableChange
from changefeed.formats.registry import format_of
from changefeed.model.statement import Statement
from changefeed.model.table_schema import Column, TableSchema

TABLE = TableSchema(
    "shop",
    "orders",
    (
        Column("id", "int", unsigned=True),
        Column("state", "enum", collation="utf8mb4_0900_ai_ci", labels=("new", "paid")),
    ),
    (0,),
)
CHANGES: list[TableChange] = [("shop", "orders", TABLE), ("shop", "old orders", None)]
STATEMENT = Statement(
    "bin.000012", 4077, 1_769_860_800, "uuid:9", "shop", "ALTER TABLE orders …", server_id=7, size_bytes=90
)


def of(name: str, **options: Any) -> Format:
    return format_of(name, FormatSettings("eu", 1, options=options))


def schema_change(format: Format, changes: list[TableChange], kind: str = "ALTER") -> dict[str, Any]:
    record: dict[str, Any] = orjson.loads(format.schema_change(STATEMENT, kind, changes))
    return record


def statement(format: Format, *, hide_sql: bool = False) -> dict[str, Any]:
    record: dict[str, Any] = orjson.loads(format.statement(STATEMENT, [("shop", "orders")], hide_sql=hide_sql))
    return record


def test_flat_lets_schema_changes_pass_and_drops_truncate_as_the_transform_does() -> None:
    flat = of("flat")
    assert schema_change(flat, CHANGES) == schema_change(of("debezium"), CHANGES)
    assert flat.truncate(STATEMENT, TABLE) is None
    assert statement(flat) == {
        "__op": "q", "__source_ts_ms": 1_769_860_800_000, "__database": "shop", "__sql": STATEMENT.sql,
        "__tables": ["shop.orders"],
    }  # fmt: skip
    assert statement(flat, hide_sql=True)["__sql"] is None


def test_debezium_skips_truncate_by_default_and_says_all_of_its_source_otherwise() -> None:
    assert of("debezium").truncate(STATEMENT, TABLE) is None
    record = orjson.loads(of("debezium", **{"skipped.operations": "none"}).truncate(STATEMENT, TABLE) or b"")
    assert (record["op"], record["source"]["ts_us"]) == ("t", 1_769_860_800_000_000)
    with_schema = orjson.loads(
        of("debezium", **{"skipped.operations": "c", "schemas": True}).truncate(STATEMENT, TABLE) or b""
    )
    assert with_schema["payload"] == record
    assert with_schema["schema"]["name"] == "eu.shop.orders.Envelope"


def test_maxwell_says_what_a_table_is_now() -> None:
    maxwell = of("maxwell", output_binlog_position=True, output_gtid_position=True)
    record = schema_change(maxwell, CHANGES)
    assert record == {
        "type": "table-alter", "database": "shop", "table": "orders", "ts": 1_769_860_800_000, "sql": STATEMENT.sql,
        "position": "bin.000012:4167", "gtid": "uuid:9",
        "def": {
            "database": "shop", "table": "orders", "primary-key": ["id"],
            "columns": [
                {"type": "int", "name": "id", "signed": False},
                {"type": "enum", "name": "state", "charset": "utf8mb4", "enum-values": ["new", "paid"]},
            ],
        },
        "others": [{"database": "shop", "table": "old orders"}],
    }  # fmt: skip
    assert schema_change(of("maxwell"), CHANGES[1:], "DROP")["type"] == "table-drop"
    assert schema_change(of("maxwell"), CHANGES[1:], "RENAME")["type"] == "table-alter"
    assert schema_change(of("maxwell"), [], "CREATE") == {
        "type": "database-create", "database": "shop", "ts": 1_769_860_800_000, "sql": STATEMENT.sql
    }  # fmt: skip
    assert maxwell.truncate(STATEMENT, TABLE) is None
    assert statement(of("maxwell"), hide_sql=True) == {
        "type": "statement", "database": "shop", "ts": 1_769_860_800, "sql": None, "tables": ["shop.orders"]
    }  # fmt: skip


@pytest.mark.parametrize("data", [{"name": "debezium", "skipped.operations": "none"}, "flat", "maxwell"])
def test_cloudevents_have_the_attributes_that_the_specification_requires(data: Any) -> None:
    events = of("cloudevents", data=data, source="urn:eu", type="com.example")
    truncated = events.truncate(STATEMENT, TABLE)
    records = [schema_change(events, CHANGES), statement(events), *([orjson.loads(truncated)] if truncated else [])]
    assert (truncated is None) == isinstance(data, str)
    assert [record["type"] for record in records] == [
        "com.example.schema.changed", "com.example.statement", "com.example.table.truncated"
    ][: len(records)]  # fmt: skip
    assert len({record["id"] for record in records}) == len(records), "one source has no id twice"
    for record in records:
        assert (record["specversion"], record["source"]) == ("1.0", "urn:eu")
        assert record["datacontenttype"] == "application/json"
        assert datetime.fromisoformat(record["time"]).timestamp() == STATEMENT.ts_seconds
        assert record["subject"].startswith("shop.orders")
    assert records[0]["data"] == schema_change(of("maxwell" if data == "maxwell" else "debezium"), CHANGES)
    assert dict(events.statement_headers(STATEMENT))["content-type"] == b"application/cloudevents+json; charset=UTF-8"


def test_fluvio_makes_query_events_of_statements() -> None:
    fluvio = of("fluvio", mysql_resource_name="mysql-srv1")
    record = {
        "uri": "flv://mysql-srv1/shop", "sequence": 0, "bn_file": {"fileName": "bin.000012", "offset": 4077},
        "operation": {"Query": STATEMENT.sql},
    }  # fmt: skip
    assert schema_change(fluvio, CHANGES) == statement(fluvio) == record
    assert statement(fluvio, hide_sql=True)["operation"] == {"Query": ""}
    assert fluvio.truncate(STATEMENT, TABLE) is None
