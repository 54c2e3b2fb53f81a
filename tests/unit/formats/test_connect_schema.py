"""A table's Connect schema, its defaults at the edges, and its spelling as Avro."""

from __future__ import annotations

import pytest

from changefeed.formats.avro_schema import avro, field_name, full_name
from changefeed.formats.column_defaults import with_default
from changefeed.formats.connect_schema import envelope, prefix_of, row_schema, value_schema
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.table_schema import Column, Default, TableSchema

STYLE = Style(
    {
        Kind.DECIMAL: Encoding.PRECISE,
        Kind.DATE: Encoding.EPOCH,
        Kind.TIME: Encoding.EPOCH,
        Kind.DATETIME: Encoding.EPOCH,
    }
)


def described(column: Column) -> object:
    """The column's schema with its default, as Avro."""
    return avro(with_default(value_schema(column, STYLE), column))


@pytest.mark.parametrize(
    ("column", "default"),
    [
        (Column("c", "decimal", precision=65, scale=30, default=Default("-1." + "1" * 30)), -int("1" * 31)),
        (Column("c", "decimal", precision=5, scale=0, default=Default("128")), 128),
        (Column("c", "decimal", precision=5, scale=0, default=Default("-128")), -128),
    ],
)
def test_the_default_of_a_decimal_is_its_unscaled_number_in_the_fewest_bytes(column: Column, default: int) -> None:
    value = with_default(value_schema(column, STYLE), column).default
    assert isinstance(value, bytes)
    assert int.from_bytes(value, "big", signed=True) == default
    assert value[:2] not in (b"\x00\x00", b"\xff\xff")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("c", "date", default=Default("0000-00-00"), nullable=True), None),
        (Column("c", "datetime", default=Default("0000-00-00 00:00:00"), nullable=False), 0),
        (Column("c", "time", default=Default("-838:59:59"), nullable=False), -3020399000000),
        (Column("c", "bigint", unsigned=True, default=Default("18446744073709551615"), nullable=False), 2**63 - 1),
        (Column("c", "int", default=Default("(1 + 1)", is_sql=True), nullable=False), None),
        (Column("c", "int", default=Default("1"), generated=True, nullable=False), None),
    ],
)
def test_defaults_at_the_edges(column: Column, expected: int | None) -> None:
    assert with_default(value_schema(column, STYLE), column).default == expected


def test_the_branch_of_the_default_comes_first_in_a_union() -> None:
    assert described(Column("c", "int")) == ["null", "int"]
    assert described(Column("c", "int", default=Default("7"))) == [{"type": "int", "connect.default": 7}, "null"]
    assert described(Column("c", "int", default=Default("7"), nullable=False)) == {"type": "int", "connect.default": 7}


def test_a_record_is_spelled_once_and_named_from_then_on() -> None:
    row = row_schema("my-server.shop.1st.Value", [("odd näme", value_schema(Column("odd näme", "int"), STYLE))])
    spelled = avro(envelope("my-server.shop.1st", row))
    before, after = (field["type"][1] for field in spelled["fields"][:2])
    assert (before["namespace"], before["name"], after) == ("my_server.shop._1st", "Value", "my_server.shop._1st.Value")
    assert before["fields"] == [{"name": "odd_n_me", "type": ["null", "int"], "default": None}]


def test_names_are_changed_as_debezium_changes_them() -> None:
    assert [field_name(name) for name in ("1x", "odd name-ä", "a.b", "_a", "a$b")] == [
        *("_1x", "odd_name__", "a_b", "_a", "a_b")
    ]
    assert full_name("my-server.a.b$") == "my_server.a.b_"


def test_schemas_of_a_table_are_named_as_debezium_names_its_topic() -> None:
    assert prefix_of("shop", TableSchema("d b", "t-odd Näme.1😀", ())) == "shop.d_b.t-odd_N_me.1__"
    assert len(prefix_of("shop", TableSchema("d" * 200, "t" * 200, ()))) == 249
