"""The one table of column types: who reads it, and what a type needs that is not in it yet."""

from __future__ import annotations

import struct

import orjson
import pytest

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, EventType
from changefeed.binlog.kernel import layout
from changefeed.binlog.programs import codecs
from changefeed.ddl import Schemas, Server, SessionContext, Table, read_statement
from changefeed.ddl.names import TableName
from changefeed.errors import SchemaError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model import column_types
from changefeed.model.column_types import (
    DATA_TYPES,
    WIRE_TYPES,
    DataType,
    Metadata,
    WireType,
    data_type_name,
    data_type_named,
)
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.table_schema import TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock

WITHOUT_ROWS = {column_types.DECIMAL, column_types.NULL}
"""Types of before MySQL 5.0 and of literals: no server writes rows of them."""


def test_every_type_on_the_wire_has_a_codec() -> None:
    assert {number for number, wire in WIRE_TYPES.items() if wire not in WITHOUT_ROWS} == codecs.CODECS.keys() - {
        codecs.WRITTEN
    }


def test_every_name_and_spelling_means_one_type() -> None:
    names = [name for data_type in DATA_TYPES.values() for name in (data_type.name, *data_type.spellings)]
    assert len(names) == len(set(names))
    assert {data_type.binary for data_type in DATA_TYPES.values()} - {None} <= DATA_TYPES.keys()
    assert data_type_named("INTEGER") is DATA_TYPES["int"]
    assert data_type_named("money") is None


@pytest.mark.parametrize(
    ("wire", "meta", "text", "binary"),
    [
        (column_types.STRING, 16, "char", "binary"),
        (column_types.VARCHAR, 80, "varchar", "varbinary"),
        (column_types.BLOB, 1, "tinytext", "tinyblob"),
        (column_types.BLOB, 4, "longtext", "longblob"),
        (column_types.LONGLONG, 0, "bigint", "bigint"),
        (column_types.GEOMETRY, 4, "geometry", "geometry"),
        (column_types.NULL, 0, "", ""),
    ],
)
def test_a_table_map_alone_names_the_usual_type(wire: WireType, meta: int, text: str, binary: str) -> None:
    assert data_type_name(wire, meta, is_binary=False) == text
    assert data_type_name(wire, meta, is_binary=True) == binary


def test_a_new_type_takes_its_rows_of_the_table_and_a_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type MONEY, 8 bytes of hundredths, with a byte of metadata that says how many decimals are shown.

    Its values are written as a kind that the kernel has, as those of most new types can be. Another way of writing
    takes a constant in its group in `kernel.layout`, and a branch in that group's function in `kernel.values`.
    """
    wire = WireType(200, "MONEY", Metadata.BYTE, has_sign=True)
    monkeypatch.setitem(WIRE_TYPES, wire.number, wire)
    monkeypatch.setitem(DATA_TYPES, "money", DataType("money", (wire,), spellings=("cash",), is_exact=True))
    monkeypatch.setitem(codecs.CODECS, wire.number, money)

    sql = "CREATE TABLE t (id INT PRIMARY KEY, price CASH UNSIGNED)"
    definition = read_statement(sql, SessionContext("shop"), Server())
    table = Schemas(Server(), {"shop": Server().collation}).apply(definition).tables[TableName("shop", "t")]
    assert isinstance(table, Table)
    price = table.schema.columns[1]
    assert (price.name, price.data_type, price.unsigned, price.nullable) == ("price", "money", True, True)

    rows = decoded_rows(table.schema, types=(3, 200), metadata=b"\2", row=struct.pack("<iQ", 1, 1 << 63))
    assert rows == [{"id": 1, "price": 1 << 63}]
    with pytest.raises(SchemaError, match=r"expected `price` as column 2, found int\[0\]"):
        decoded_rows(table.schema, types=(3, 3), metadata=b"", row=struct.pack("<ii", 1, 1))


def money(column: codecs.BoundColumn, _style: object, _memory: object) -> codecs.Spec:
    return codecs.Spec(layout.UNSIGNED if column.unsigned else layout.SIGNED, fixed=8, a=8)


def decoded_rows(schema: TableSchema, types: tuple[int, ...], metadata: bytes, row: bytes) -> list[object]:
    """What the kernel makes of a WRITE_ROWS event with this row, whose TABLE_MAP names no columns."""
    description = struct.pack("<H50sIB", 4, b"9.7.0", 0, HEADER_SIZE) + bytes(5)  # no checksums
    names = b"".join(bytes([len(name)]) + name.encode() + b"\0" for name in (schema.database, schema.table))
    table_map = struct.pack("<IHH", 7, 0, 0) + names
    table_map += bytes([len(types), *types, len(metadata)]) + metadata + b"\0"
    rows = struct.pack("<IHHH", 7, 0, 1, 2) + bytes([len(types), 0xFF, 0]) + row
    bodies = {EventType.FORMAT_DESCRIPTION: description, EventType.TABLE_MAP: table_map, EventType.WRITE_ROWS: rows}
    data = b"".join(HEADER.pack(1, kind, 1, HEADER_SIZE + len(body), 0, 0) + body for kind, body in bodies.items())
    decoder = KernelDecoder(lambda _database, table: Route(table, 1), lambda *_: schema, DebeziumFormat("t", 0), "uuid")
    window_slice = Slice(0, "bin.000001", FIRST_POSITION, FIRST_POSITION + len(data))
    blocks = [item for item in decoder.decode([data], window_slice) if isinstance(item, MessageBlock)]
    return [orjson.loads(message.value or b"null")["after"] for block in blocks for message in block.messages()]
