"""The messages of Fluvio's MySQL CDC producer: a binlog event with typed cells, and statements as `Query` events.

Source: https://github.com/infinyon/fluvio-demo-apps-rust/tree/0081513/cdc-mysql, `src/messages/` (their fields) and
`src/producer/binlog_manager/binlog_parser.rs` (what they are filled with)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import orjson

from changefeed.errors import SettingsError
from changefeed.formats.format import FormatSettings, TableChange
from changefeed.formats.notation import ColumnText, JsonNotation, Notation, json_string
from changefeed.formats.options import Options, text
from changefeed.formats.reader import JsonImage, ReadChange, RecordReader, SchemaText
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.model.coordinates import sequence_number
from changefeed.model.statement import Statement
from changefeed.model.table_schema import Column, TableSchema
from changefeed.records.block import Header

_STYLE = Style(
    {
        Kind.DECIMAL: Encoding.STRING,
        Kind.BIGINT_UNSIGNED: Encoding.STRING,
        **dict.fromkeys((Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP), Encoding.PARTS),
        **dict.fromkeys((Kind.BINARY, Kind.GEOMETRY), Encoding.NUMBERS),
        Kind.ENUM: Encoding.INDEX,
        Kind.JSON: Encoding.INLINE,
    }
)

_CELLS: Mapping[str, str] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "bit"), "SignedInteger"),
    "float": "Float",
    "double": "Double",
    "decimal": "Decimal",
    "year": "Year",
    "date": "Date",
    "datetime": "DateTime",
    "timestamp": "Timestamp",
    "enum": "Enum",
    **dict.fromkeys(("json", "vector"), "Json"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "Blob"),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon"), "Blob"),
    **dict.fromkeys(("multipoint", "multilinestring", "multipolygon"), "Blob"),
    **dict.fromkeys(("geomcollection", "geometrycollection"), "Blob"),
}
"""What a cell is called, by the column's type; all others are strings."""

RESOURCE = text("mysql_resource_name", "{pipeline}")
OPTIONS = (RESOURCE,)


@dataclass(frozen=True)
class _FluvioNotation(JsonNotation):
    """A row is an array of cells, each an object with its type; a row that lacks a cell is refused."""

    opening: bytes = b"["
    closing: bytes = b"]"

    def column(self, column: Column) -> ColumnText:
        cell = _CELLS.get(column.data_type, "String")
        if column.data_type == "bigint" and column.unsigned:
            cell = "Decimal"  # a signed integer would not hold it
        return ColumnText(f'{{"{cell}":'.encode(), b'"Null"', missing=None, after=b"}")


@dataclass(frozen=True)
class FluvioFormat:
    """``resource`` is the authority of the messages' URIs. No message has a key: a topic has them in commit order."""

    resource: str
    style: Style = _STYLE
    notation: Notation = _FluvioNotation()
    needs_definitions: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> FluvioFormat:
        """The format as ``settings`` say; raises OptionError for options that it does not have, and SettingsError for a
        style, as cells have types of their own."""
        options = Options("fluvio", OPTIONS, settings.options)
        if settings.style.chosen:
            raise SettingsError("format 'fluvio' writes values as typed cells: leave `values` out")
        return cls(options[RESOURCE].replace("{pipeline}", settings.server_name))

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        """One each, and no tombstones."""
        return ONE_MESSAGE_EACH

    def value(self, table: TableSchema, op: Op) -> Template:
        """A binlog event of one row."""
        names = b",".join(json_string(column.name) for column in table.columns)
        operation: Template = (b'"Add":{"rows":[{"cols":', Slot.AFTER)
        if op == "u":
            operation = (b'"Update":{"rows":[{"before_cols":', Slot.BEFORE, b',"after_cols":', Slot.AFTER)
        elif op == "d":
            operation = (b'"Delete":{"rows":[{"cols":', Slot.BEFORE)
        return (
            b'{"uri":%b,"sequence":' % json_string(self._uri(table.database, table.table)),
            Slot.SEQUENCE,
            b',"bn_file":{"fileName":"',
            Slot.FILE,
            b'","offset":',
            Slot.POSITION,
            b'},"columns":[%b],"operation":{' % names,
            *operation,
            b"}]}}}",
        )

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:  # noqa: ARG002 - the protocol's signature
        """Records have no keys; of a statement they have only its text."""
        return RecordReader(_change_of, has_keys=False)

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:  # noqa: ARG002
        """The statement as a `Query` event."""
        return self._query(statement, statement.sql)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:  # noqa: ARG002
        """None: it is a statement as any other, and `publish_ddl` says where those go."""
        return None

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:  # noqa: ARG002
        """The statement as a `Query` event, with no text where that is hidden."""
        return self._query(statement, "" if hide_sql else statement.sql)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """None."""
        return ()

    def _query(self, statement: Statement, sql: str) -> bytes:
        return orjson.dumps(
            {
                "uri": self._uri(statement.database),
                "sequence": sequence_number(statement.file, statement.position, 0),
                "bn_file": {"fileName": statement.file, "offset": statement.position},
                "operation": {"Query": sql},
            }
        )

    def _uri(self, *names: str) -> str:
        return f"flv://{self.resource}/" + "/".join(quote(name, safe="") for name in names)


_ROWS = {"Add": ("c", None, "cols"), "Update": ("u", "before_cols", "after_cols"), "Delete": ("d", "cols", None)}
"""The op of each kind of operation, and where its rows are."""


def _change_of(value: Any) -> ReadChange:
    ((kind, operation),) = value["operation"].items()
    names = [unquote(name) for name in value["uri"].removeprefix("flv://").split("/")[1:]]
    if kind == "Query":
        return ReadChange("s", names[0], sql=operation)
    op, before, after = _ROWS[kind]
    (row,) = operation["rows"]

    def image(cells: str | None) -> JsonImage | None:
        if cells is None:
            return None
        values = (None if cell == "Null" else next(iter(cell.values())) for cell in row[cells])
        return dict(zip(value["columns"], values, strict=True))

    return ReadChange(op, ".".join(names), image(before), image(after))
