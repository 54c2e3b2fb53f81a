"""Stored schemas: what an earlier changefeed wrote is read, and what it did not know is not taken for "no"."""

from __future__ import annotations

import json
from typing import Any

from changefeed.coordinates import BinlogCoordinates
from changefeed.ddl import Schemas, SchemaTimeline, SessionContext, Table, TableName, read_statement
from changefeed.ddl.schemas_json import column_from_json, column_to_json
from changefeed.table_schema import NO_DEFAULT, Column, Default, Index, TableSchema, UniqueKey

SHOP = SessionContext("shop")
VERSION_1: dict[str, Any] = {
    "initial": {
        "version": 1,
        "server": {
            "flavour": "mysql",
            "version": [8, 4, 6],
            "lower_case_table_names": 0,
            "collation": "utf8mb4_0900_ai_ci",
        },
        "databases": {"shop": "utf8mb4_0900_ai_ci"},
        "tables": [
            {
                "database": "shop",
                "table": "t",
                "collation": "utf8mb4_0900_ai_ci",
                "columns": [
                    {"name": "id", "type": "bigint", "unsigned": True},
                    {"name": "e", "type": "enum", "collation": "latin1_swedish_ci", "labels": ["a", "b"]},
                ],
                "primary_key": ["id"],
            },
            {"database": "shop", "table": "u", "unknown": "its columns come from a SELECT"},
        ],
    },
    "entries": [
        {
            "coordinates": "binlog.000001:100",
            "kind": "definition",
            "database": "shop",
            "sql": "CREATE TABLE v (a INT)",
            "touched": [["shop", "v"]],
            "tables": [
                {
                    "database": "shop",
                    "table": "v",
                    "collation": "utf8mb4_0900_ai_ci",
                    "columns": [{"name": "a", "type": "int"}],
                    "primary_key": [],
                }
            ],
            "databases": {},
        }
    ],
}
"""As it was kept in the schema topic and the state store."""


def altered(timeline: SchemaTimeline, position: int, sql: str) -> SchemaTimeline:
    return timeline.advance(BinlogCoordinates("binlog.000001", position), read_statement(sql, SHOP))


def schema(timeline: SchemaTimeline, table: str = "t") -> TableSchema:
    entry = timeline.latest.tables[TableName("shop", table)]
    assert isinstance(entry, Table)
    return entry.schema


def test_stored_version_1_is_read_and_says_that_it_does_not_know_the_properties() -> None:
    timeline = SchemaTimeline.from_json(VERSION_1)
    assert schema(timeline) == TableSchema(
        "shop",
        "t",
        (
            Column("id", "bigint", unsigned=True),
            Column("e", "enum", collation="latin1_swedish_ci", labels=("a", "b")),
        ),
        (0,),
    )
    assert schema(timeline).unique_keys is None
    for column in (*schema(timeline).columns, *schema(timeline, "v").columns):
        assert (column.nullable, column.default, column.comment, column.generated) == (None, None, None, None)


def test_definitions_after_stored_version_1_say_what_they_say_and_leave_the_rest_unknown() -> None:
    timeline = altered(SchemaTimeline.from_json(VERSION_1), 200, "ALTER TABLE t ADD c INT NOT NULL UNIQUE")
    timeline = altered(timeline, 300, "ALTER TABLE t ALTER e SET DEFAULT 'b'")
    timeline = altered(timeline, 400, "ALTER TABLE t MODIFY id BIGINT")
    own, label, added = schema(timeline).columns
    assert (own.nullable, own.default, own.comment) == (False, NO_DEFAULT, "")
    assert (label.nullable, label.default, label.comment) == (None, Default("b"), None)
    assert (added.nullable, added.default, added.comment) == (False, NO_DEFAULT, "")
    assert schema(timeline).indexes is None
    assert SchemaTimeline.from_json(json.loads(json.dumps(timeline.to_json()))) == timeline


def test_every_property_of_columns_and_keys_comes_back_from_what_is_stored() -> None:
    timeline = SchemaTimeline(Schemas(databases={"shop": "utf8mb4_0900_ai_ci"}))
    timeline = altered(
        timeline,
        100,
        "CREATE TABLE t (a BIGINT UNSIGNED ZEROFILL AUTO_INCREMENT PRIMARY KEY, b DECIMAL(5,2) NOT NULL DEFAULT 1.5, "
        "c VARCHAR(9) DEFAULT (UUID()) COMMENT 'c', d DATETIME(3), e INT AS (a + 1), f POINT NOT NULL SRID 4326, "
        "UNIQUE k (b, d), KEY (c), UNIQUE ((a + 1)), FOREIGN KEY (d) REFERENCES x (y))",
    )
    again = SchemaTimeline.from_json(json.loads(json.dumps(timeline.to_json())))
    assert again == timeline
    assert schema(again).indexes == (
        Index("c", (2,)),
        Index("d", (3,)),
        Index("functional_index", (None,), unique=True),
        Index("k", (1, 3), unique=True),
    )
    assert [index.for_foreign_key for index in schema(again).indexes or ()] == [False, True, False, False]


def test_a_column_of_which_little_is_known_comes_back_as_it_was() -> None:
    for column in (
        Column("a", "int"),
        Column("a", "int", nullable=False),
        Column("a", "int", nullable=True, default=Default("1")),
        Column("a", "int", comment=""),
        Column("a", "timestamp", datetime_precision=6, nullable=False, generated=True, row_end=True),
        Column("a", "timestamp", datetime_precision=6, nullable=False, generated=True, row_end=False),
    ):
        assert column_from_json(column_to_json(column)) == column


def test_a_row_end_stored_before_there_were_any_is_not_known() -> None:
    stored = {"name": "e", "type": "timestamp", "datetime_precision": 6, "generated": True}
    assert column_from_json(stored, 2).row_end is None
    assert column_from_json({**stored, "nullable": True}, 2).row_end is False
    assert column_from_json({"name": "e", "type": "timestamp", "datetime_precision": 6}, 2).row_end is False


def test_a_unique_key_stands_in_for_a_primary_key_only_if_none_of_its_columns_can_be_null() -> None:
    columns = (Column("a", "int", nullable=False), Column("b", "int", nullable=True), Column("c", "int"))
    indexes = (
        Index("both", (0, 1), unique=True),
        Index("plain", (0,)),
        Index("sum", (0, None), unique=True),
        Index("unsure", (2,), unique=True),
        Index("whole", (0,), unique=True),
    )
    assert TableSchema("d", "t", columns, (), indexes).unique_keys == (
        UniqueKey("both", (0, 1), not_null=False),
        UniqueKey("unsure", (2,), not_null=False),
        UniqueKey("whole", (0,), not_null=True),
    )
