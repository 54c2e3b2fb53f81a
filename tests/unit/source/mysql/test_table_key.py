"""Boundaries of chunks become SQL literals: they come from a log that others may have written to."""

from __future__ import annotations

import pytest

from changefeed.errors import SchemaError
from changefeed.model.key_range import KeyRange
from changefeed.model.table_schema import Column, TableSchema
from changefeed.source.mysql.table_key import TableKey


def condition(column: Column, text: str) -> str:
    key = TableKey.of(TableSchema("shop", "t", (column,), (0,)))
    assert key is not None
    return key.condition(KeyRange((text,)))


TEXT = Column("k", "varchar", collation="utf8mb4_0900_ai_ci")


@pytest.mark.parametrize(
    "column",
    [
        *(Column("k", kind) for kind in ("int", "decimal", "year", "double", "enum", "bit", "varbinary", "datetime")),
        *(Column("k", kind) for kind in ("uuid", "inet6", "time")),
        TEXT,
    ],
    ids=lambda column: column.data_type,
)
@pytest.mark.parametrize("text", ["0 OR (SELECT 1 FROM mysql.user)", "1)) OR ((1", "' OR '1'='1", "0'", "", "1\n"])
def test_a_boundary_that_no_server_wrote_becomes_no_sql(column: Column, text: str) -> None:
    if text == "" and column.data_type in ("varbinary", "varchar"):
        return  # a key may be empty
    with pytest.raises(SchemaError, match="expected a primary key value in a server's spelling"):
        condition(column, text)


@pytest.mark.parametrize(
    ("column", "text", "literal"),
    [
        (Column("k", "bigint"), "-9223372036854775808", "-9223372036854775808"),
        (Column("k", "decimal"), "-0.50", "-0.50"),
        (Column("k", "double"), "-1.7976931348623157e308", "-1.7976931348623157e308"),
        (Column("k", "float"), "0.1", "0.1e0"),
        (Column("k", "set"), "9223372036854775808", "9223372036854775808"),
        (Column("k", "binary"), "00FF", "_binary X'00FF'"),
        (TEXT, "", "_utf8mb4 X'' COLLATE utf8mb4_0900_ai_ci"),
        (Column("k", "time"), "-838:59:59.000000", "'-838:59:59.000000'"),
        (Column("k", "timestamp"), "2026-01-31 12:30:45.500000", "'2026-01-31 12:30:45.500000'"),
        (Column("k", "uuid"), "123e4567-e89b-12d3-a456-426655440000", "'123e4567-e89b-12d3-a456-426655440000'"),
        (Column("k", "inet6"), "::ffff:192.0.2.1", "'::ffff:192.0.2.1'"),
    ],
)
def test_a_boundary_that_a_server_wrote_is_a_literal(column: Column, text: str, literal: str) -> None:
    assert condition(column, text) == f"`k` > {literal}"
