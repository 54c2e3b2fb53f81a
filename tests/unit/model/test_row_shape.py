from __future__ import annotations

from dataclasses import replace

import pytest

from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.programs.bound_table import bind
from changefeed.errors import SchemaError
from changefeed.model.column_types import MapColumn
from changefeed.model.row_shape import fit
from changefeed.model.table_schema import Column, TableSchema


def row(type: int, meta: int, *, unsigned: bool | None = None, nullable: bool = True) -> MapColumn:
    return MapColumn(type, meta, nullable=nullable, unsigned=unsigned)


SCHEMA = TableSchema("shop", "t", (Column("id", "bigint", unsigned=True), Column("e", "enum", labels=("a", "b"))), (0,))
ROWS = (row(8, 0), row(247, 1))
TIMESTAMP6 = row(17, 6, nullable=False)


def test_rows_of_the_known_columns_have_the_known_schema() -> None:
    assert fit(SCHEMA, ROWS) is SCHEMA


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROWS[:1], id="a column less"),
        pytest.param((*ROWS, row(3, 0)), id="a column more"),
        pytest.param((row(3, 0), ROWS[1]), id="another type"),
        pytest.param((row(8, 0, unsigned=False), ROWS[1]), id="signed"),
        pytest.param((ROWS[0], row(247, 2)), id="more labels than are known"),
        pytest.param((*ROWS, TIMESTAMP6, TIMESTAMP6), id="MariaDB's columns on MySQL"),
    ],
)
def test_a_contradiction_shows_both_definitions_and_the_way_out(rows: tuple[MapColumn, ...]) -> None:
    with pytest.raises(SchemaError) as error:
        fit(SCHEMA, rows)
    message = str(error.value)
    assert "(id bigint unsigned, e enum)" in message
    assert "The binlog has (bigint[0]" in message or "The binlog has (int[0]" in message
    assert "changefeed schema PIPELINE --relearn shop.t" in message


def test_columns_that_mariadb_lists_nowhere_come_after_the_known_ones() -> None:
    fitted = fit(SCHEMA, (*ROWS, TIMESTAMP6, TIMESTAMP6, row(8, 0), row(8, 0)), is_mariadb=True)
    assert [column.name for column in fitted.columns[2:]] == ["row_start", "row_end", "DB_ROW_HASH_1", "DB_ROW_HASH_2"]


def test_nullable_columns_exclude_columns_that_mariadb_hides() -> None:
    own = row(17, 6)
    with pytest.raises(SchemaError):
        fit(SCHEMA, (*ROWS, own, own), is_mariadb=True)


def test_columns_of_an_outer_joined_table_are_nullable_also_hidden_ones() -> None:
    with_key = replace(SCHEMA, columns=(replace(SCHEMA.columns[0], nullable=False), SCHEMA.columns[1]))
    own = row(17, 6)
    fitted = fit(with_key, (*ROWS, own, own), is_mariadb=True)
    assert [column.name for column in fitted.columns[2:]] == ["row_start", "row_end"]
    with pytest.raises(SchemaError):
        fit(with_key, (replace(ROWS[0], nullable=False), ROWS[1], own, own), is_mariadb=True)


@pytest.mark.parametrize(
    ("data_type", "row"),
    [
        ("tinytext", row(252, 1)),
        ("blob", row(252, 2)),
        ("mediumtext", row(252, 3)),
        ("longblob", row(140, 4)),
        ("uuid", row(254, 16)),
        ("inet4", row(254, 4)),
        ("timestamp", row(7, 0)),
        ("of a later server", row(99, 0)),
    ],
)
def test_metadata_of_a_type_fits(data_type: str, row: MapColumn) -> None:
    fit(TableSchema("d", "t", (Column("c", data_type),)), (row,))


def test_a_text_that_grew_does_not_fit() -> None:
    with pytest.raises(SchemaError):
        fit(TableSchema("d", "t", (Column("c", "text"),)), (row(252, 3),))


def test_a_collation_that_no_server_has_stops_the_table_and_names_the_column() -> None:
    schema = TableSchema("shop", "t", (Column("name", "varchar", collation="nosuch_ci"),))
    with pytest.raises(SchemaError, match="column 'name' has collation 'nosuch_ci'"):
        bind(TableMap(1, "shop", "t", [row(15, 80)]), schema)
