"""The format `fluvio`: messages of Fluvio's MySQL CDC producer. Row changes are binlog events with typed cells, and
statements are `Query` events.

Source: https://github.com/infinyon/fluvio-demo-apps-rust/tree/0081513/cdc-mysql, `src/messages/` for the fields, and
`src/producer/binlog_manager/binlog_parser.rs` for their values
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import orjson

from changefeed.errors import SettingsError
from changefeed.formats.format import FormatSettings, Numbering, TableChange
from changefeed.formats.notation import ColumnText, JsonNotation, Notation, json_string
from changefeed.formats.options import Options, text
from changefeed.formats.reader import Envelope, JsonImage, ReadChange, RecordReader, SchemaText, envelopes_of
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template, join_rows
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
"""The type names of cells, by the type of the column. Other cells are strings."""

RESOURCE = text("mysql_resource_name", "{pipeline}")
OPTIONS = (RESOURCE,)


@dataclass(frozen=True)
class _FluvioNotation(JsonNotation):
    """The notation in which a row is an array of cells, and a cell is an object with its type. A row image without all
    columns is an error."""

    opening: bytes = b"["
    closing: bytes = b"]"

    def column(self, column: Column) -> ColumnText:
        cell = _CELLS.get(column.data_type, "String")
        if column.data_type == "bigint" and column.unsigned:
            cell = "Decimal"  # a signed integer would not hold it
        return ColumnText(f'{{"{cell}":'.encode(), b'"Null"', missing=None, after=b"}")


@dataclass(frozen=True)
class FluvioFormat:
    """The format `fluvio`. ``resource`` is the authority of the messages' URIs.

    Messages have no key, because a topic has them in commit order.
    """

    resource: str
    style: Style = _STYLE
    notation: Notation = _FluvioNotation()
    needs_definitions: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> FluvioFormat:
        """The format with ``settings``.

        Raises OptionError for an invalid option, and SettingsError for a style, because cells have their own types.
        """
        options = Options("fluvio", OPTIONS, settings.options)
        if settings.style.chosen:
            raise SettingsError("format 'fluvio' writes values as typed cells: leave `values` out")
        return cls(options[RESOURCE].replace("{pipeline}", settings.server_name))

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:  # noqa: ARG002 - the protocol's signature
        """No key."""
        return None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        """One message for each change, and no tombstones."""
        return ONE_MESSAGE_EACH

    def value(self, table: TableSchema, op: Op) -> Template:
        """The value: a binlog event with all of its rows."""
        names = b",".join(json_string(column.name) for column in table.columns)
        kind = b"Add"
        row: Template = (b'{"cols":', Slot.AFTER, b"}")
        if op == "u":
            kind, row = b"Update", (b'{"before_cols":', Slot.BEFORE, b',"after_cols":', Slot.AFTER, b"}")
        elif op == "d":
            kind, row = b"Delete", (b'{"cols":', Slot.BEFORE, b"}")
        number: Template = (Slot.SEQUENCE,) if op == "r" else (b"0",)  # `numbering` sets the number of an event later
        head: Template = (
            b'{"uri":%b,"sequence":' % json_string(self._uri(table.database, table.table)),
            *number,
            b',"bn_file":{"fileName":"',
            Slot.FILE,
            b'","offset":',
            Slot.POSITION,
            b'},"columns":[%b],"operation":{"%b":{"rows":[' % (names, kind),
        )
        return join_rows(op, head, row, b"]}}}")

    @property
    def joins_rows(self) -> bool:
        """True: a message has all rows of an event."""
        return True

    @property
    def numbering(self) -> Numbering:
        """The function that sets `sequence`: the number of a record in its topic-partition, from 0."""
        return _with_number

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:  # noqa: ARG002 - the protocol's signature
        """The reader of records, which have no keys. The record of a statement has only its text."""
        return RecordReader(
            _changes_of, has_keys=False, envelopes=envelopes_of(_envelopes), exact=frozenset({Kind.JSON})
        )

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:  # noqa: ARG002
        """The statement as a `Query` event."""
        return self._query(statement, statement.sql)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:  # noqa: ARG002
        """None: TRUNCATE is published as a statement, if `publish_ddl` is set."""
        return None

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:  # noqa: ARG002
        """The statement as a `Query` event, without its text if ``hide_sql`` is set."""
        return self._query(statement, "" if hide_sql else statement.sql)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """No headers."""
        return ()

    def _query(self, statement: Statement, sql: str) -> bytes:
        return orjson.dumps(
            {
                "uri": self._uri(statement.database),
                "sequence": 0,
                "bn_file": {"fileName": statement.file, "offset": statement.position},
                "operation": {"Query": sql},
            }
        )

    def _uri(self, *names: str) -> str:
        return f"flv://{self.resource}/" + "/".join(quote(name, safe="") for name in names)


_UNNUMBERED = b',"sequence":0,"bn_file":'
"""No JSON string has this text, because its quotes would be escaped. Only a JSON document may have it, and it comes
after the record's own."""


def _with_number(value: bytes, number: int) -> bytes:
    if not value.startswith(b'{"uri":"flv://'):
        return value
    return value.replace(_UNNUMBERED, b',"sequence":%d,"bn_file":' % number, 1)


_ROWS = {"Add": ("c", None, "cols"), "Update": ("u", "before_cols", "after_cols"), "Delete": ("d", "cols", None)}
"""The op of each kind of operation, and the fields of its rows."""
_JSON_NULL = orjson.Fragment(b"null")
"""The JSON document null, as opposed to NULL."""


def _changes_of(value: Any) -> list[ReadChange]:
    ((kind, operation),) = value["operation"].items()
    if kind == "Query":
        return [ReadChange("s", _names_of(value)[0], sql=operation)]
    return [
        ReadChange(change.op, f"{change.database}.{change.table}", _plain(change.before), _plain(change.after))
        for change in _envelopes(value)
    ]


def _plain(image: JsonImage | None) -> JsonImage | None:
    """``image`` for comparisons, in which the document null and NULL are equal."""
    return None if image is None else {name: None if it is _JSON_NULL else it for name, it in image.items()}


def _envelopes(value: Any) -> list[Envelope]:
    ((kind, operation),) = value["operation"].items()
    if kind == "Query":
        return []
    op, before, after = _ROWS[kind]
    database, table = _names_of(value)
    columns, where = value["columns"], value["bn_file"]
    return [
        Envelope(
            op, database, table, _image(columns, row, before), _image(columns, row, after),
            where["fileName"], where["offset"],
        )
        for row in operation["rows"]
    ]  # fmt: skip


def _image(columns: Sequence[str], row: Any, cells: str | None) -> JsonImage | None:
    return None if cells is None else dict(zip(columns, map(_value, row[cells]), strict=True))


def _value(cell: Any) -> Any:
    if cell == "Null":
        return None
    ((kind, value),) = cell.items()
    return _JSON_NULL if value is None and kind == "Json" else value


def _names_of(value: Any) -> list[str]:
    return [unquote(name) for name in value["uri"].removeprefix("flv://").split("/")[1:]]
