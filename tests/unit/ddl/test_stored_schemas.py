"""Stored schemas are read back unchanged, and unknown properties stay unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from changefeed.ddl import Schemas, SchemaTimeline, SessionContext, Table, TableName, read_statement
from changefeed.ddl.schemas_json import column_from_json, column_to_json
from changefeed.errors import CheckpointError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import NO_DEFAULT, Column, Default, Index, TableSchema, UniqueKey, ordered_indexes

SHOP = SessionContext("shop")
STORED: dict[str, Any] = {
    "initial": {
        "version": 3,
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
                    {"name": "id", "type": "bigint", "unsigned": True, "unknown": True},
                    {
                        "name": "e",
                        "type": "enum",
                        "collation": "latin1_swedish_ci",
                        "labels": ["a", "b"],
                        "nullable": True,
                    },
                ],
                "primary_key": ["id"],
                "indexes": None,
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
                    "columns": [{"name": "a", "type": "int", "nullable": True}],
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


def column(name: str, data_type: str, **others: Any) -> Column:
    """A column of which all is known."""
    return Column(
        name,
        data_type,
        nullable=True,
        zerofill=False,
        auto_increment=False,
        generated=False,
        virtual=False,
        default=NO_DEFAULT,
        comment="",
        row_end=False,
        **others,
    )


def schema(timeline: SchemaTimeline, table: str = "t") -> TableSchema:
    entry = timeline.latest.tables[TableName("shop", table)]
    assert isinstance(entry, Table)
    return entry.schema


def test_stored_schemas_are_read() -> None:
    timeline = SchemaTimeline.from_json(STORED)
    assert schema(timeline) == TableSchema(
        "shop",
        "t",
        (
            Column("id", "bigint", unsigned=True),
            column("e", "enum", collation="latin1_swedish_ci", labels=("a", "b")),
        ),
        (0,),
    )
    assert schema(timeline).unique_keys is None
    assert schema(timeline, "v").columns == (column("a", "int"),)
    assert json.loads(json.dumps(timeline.to_json())) == STORED


def test_schemas_of_another_version_are_refused() -> None:
    for version in (2, 4, None):
        with pytest.raises(CheckpointError, match="another changefeed wrote them"):
            SchemaTimeline.from_json({**STORED, "initial": {**STORED["initial"], "version": version}})


def test_sql_definitions_leave_unstated_properties_unknown() -> None:
    timeline = altered(SchemaTimeline.from_json(STORED), 200, "ALTER TABLE t ADD c INT NOT NULL UNIQUE")
    timeline = altered(timeline, 300, "ALTER TABLE t ALTER e SET DEFAULT 'b'")
    own, label, added = schema(timeline).columns
    assert (own.nullable, own.default, own.comment) == (False, None, None), "a primary key's, else not known"
    assert (label.nullable, label.default, label.comment) == (True, Default("b"), "")
    assert (added.nullable, added.default, added.comment) == (False, NO_DEFAULT, "")
    assert schema(timeline).indexes is None
    own = schema(altered(timeline, 400, "ALTER TABLE t MODIFY id BIGINT")).columns[0]
    assert (own.nullable, own.default, own.comment) == (False, NO_DEFAULT, "")
    assert SchemaTimeline.from_json(json.loads(json.dumps(timeline.to_json()))) == timeline


def test_stored_columns_and_keys_are_read_back_unchanged() -> None:
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
        Index("k", (1, 3), unique=True),
        Index("functional_index", (None,), unique=True),
        Index("c", (2,)),
        Index("d", (3,)),
    )
    assert [index.for_foreign_key for index in schema(again).indexes or ()] == [False, False, False, True]


def test_a_column_of_which_little_is_known_comes_back_as_it_was() -> None:
    for stored in (
        Column("a", "int"),
        Column("a", "int", nullable=False),
        Column("a", "int", nullable=True, default=Default("1")),
        Column("a", "int", comment=""),
        Column("a", "timestamp", datetime_precision=6, nullable=False, generated=True, row_end=True),
        Column("a", "timestamp", datetime_precision=6, nullable=False, generated=True, row_end=False),
    ):
        assert column_from_json(column_to_json(stored)) == stored


def test_unique_key_replaces_primary_key_if_its_columns_are_not_null() -> None:
    columns = (
        Column("a", "int", nullable=False, virtual=False),
        Column("b", "int", nullable=True, virtual=False),
        Column("c", "int"),
    )
    indexes = (
        Index("both", (0, 1), unique=True),
        Index("plain", (0,)),
        Index("sum", (0, None), unique=True),
        Index("unsure", (2,), unique=True),
        Index("complete", (0,), unique=True),
    )
    indexes = ordered_indexes((index, columns) for index in indexes)
    assert TableSchema("d", "t", columns, (), indexes).unique_keys == (
        UniqueKey("complete", (0,), not_null=True, may_be_primary=True),
        UniqueKey("both", (0, 1), not_null=False, may_be_primary=False),
        UniqueKey("unsure", (2,), not_null=False, may_be_primary=False),
    )
