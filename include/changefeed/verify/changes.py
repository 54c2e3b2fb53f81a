"""What the value of a record says of a row, read as a consumer would who knows only the wire format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from changefeed.ddl.ddl_statement import Kind as StatementKind
from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.session import SessionContext
from changefeed.errors import SettingsError
from changefeed.formats.avro import AvroFormat, schema_number
from changefeed.formats.avro_reader import AvroReader
from changefeed.formats.cloudevents import CloudEventsFormat
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.flat import FlatFormat
from changefeed.formats.fluvio import FluvioFormat
from changefeed.formats.format import Format
from changefeed.formats.headers import WithHeaders
from changefeed.formats.maxwell import MaxwellFormat
from changefeed.formats.style import Encoding, Kind
from changefeed.table_schema import TableSchema
from changefeed.verify.row_digests import Row

SCHEMA_KEY = b'{"schema":'
"""How a key begins that has its schema around it."""

SchemaText = Callable[[int], str | None]
"""The Avro schema of an id, None for one that is not known."""


@dataclass(frozen=True)
class Change:
    """``op`` is c, u, d or r of a row; t where a table was emptied, q for a statement whose rows nobody knows, and ''
    for a definition. ``table`` is "database.table", or '' where the record does not say.

    ``before`` is None of c and r, and where the format does not say it; ``after`` is None of d.
    """

    op: str
    table: str = ""
    before: Row | None = None
    after: Row | None = None


@dataclass(frozen=True)
class ChangeReader:
    """Reads the records of one wire format; ``says_before`` tells whether they have the rows that were there before.

    ``has_keys`` says that keys tell rows apart: not where there are none, nor where a changed key is a record of the
    new one only. ``load`` makes of a key or a value what JSON can say.
    """

    read: Callable[[Any], Change]
    says_before: bool = True
    has_keys: bool = True
    load: Callable[[bytes], Any] = orjson.loads
    is_text: Callable[[TableSchema], bool] = lambda _: False
    """Whether the rows of a table can be compared by the bytes that its records have of them, without being read:
    two rows are equal where, and only where, their text is."""

    @property
    def is_json(self) -> bool:
        """Whether its records are JSON."""
        return self.load is orjson.loads

    def of(self, value: bytes) -> Change:
        """Raises ValueError for what is no value of the format."""
        try:
            return self.read(_payload(self.load(value)))
        except (TypeError, KeyError, AttributeError, IndexError) as error:
            raise ValueError(f"it is of another format ({type(error).__name__})") from error

    def key(self, key: bytes) -> bytes:
        """A message key as JSON, without the schema that may stand around it. Raises ValueError for what is none."""
        if key.startswith(SCHEMA_KEY):
            return orjson.dumps(orjson.loads(key)["payload"])
        return key if self.is_json else orjson.dumps(self.load(key))


def plain_format(format: Format) -> Format:
    """The format itself, without what adds headers to it."""
    return format.format if isinstance(format, WithHeaders) else format


def change_reader(format: Format, schema_text: SchemaText | None = None) -> ChangeReader:
    """What reads the records that ``format`` writes; its Avro schemas are ``schema_text``'s, or the format's own.

    Raises SettingsError for a format whose records are not read.
    """
    plain = plain_format(format)
    match plain:
        case DebeziumFormat():
            inline = plain.style[Kind.JSON] is Encoding.INLINE
            return ChangeReader(
                _envelope,
                is_text=lambda table: (
                    not plain.schemas and not (inline and any(each.data_type == "json" for each in table.columns))
                ),
            )
        case AvroFormat():
            return ChangeReader(_envelope, load=_AvroRecords(schema_text or plain.schema_text))
        case FluvioFormat():
            return ChangeReader(_fluvio, has_keys=False)
        case FlatFormat():
            added = {field.name for field in plain.fields}
            return ChangeReader(lambda value: _flat(value, added), says_before=False)
        case MaxwellFormat():
            return ChangeReader(_maxwell, has_keys=False)
        case CloudEventsFormat():
            inner = change_reader(plain.data)
            return ChangeReader(lambda event: inner.read(_payload(event["data"])), inner.says_before, inner.has_keys)
    raise SettingsError(
        "records of the pipeline's format are not read back, so there is nothing to compare: wanted one of "
        f"{', '.join(READABLE)}"
    )


READABLE = ("debezium", "flat", "maxwell", "cloudevents", "avro", "fluvio")
"""The formats whose records are read."""


def _payload(value: Any) -> Any:
    return value["payload"] if "payload" in value and "schema" in value else value


def _envelope(value: Any) -> Change:
    if "op" not in value:
        return _definition(value)
    source = value["source"]
    return Change(value["op"], f"{source['db']}.{source['table']}", value["before"], value["after"])


def _maxwell(value: Any) -> Change:
    table, row = f"{value.get('database')}.{value.get('table')}", value.get("data")
    match value["type"]:
        case "insert" | "bootstrap-insert":
            return Change("c", table, None, row)
        case "update":
            return Change("u", table, {**row, **value.get("old", {})}, row)
        case "delete":
            return Change("d", table, row, None)
        case "statement":
            return Change("q")
        case _:
            return Change("")


def _flat(value: Any, added: set[str]) -> Change:
    if value.get("__op") == "q" and "__sql" in value:
        return Change("q")
    if "ddl" in value and "tableChanges" in value:
        return Change("")
    row = {name: cell for name, cell in value.items() if name not in added and name != "__deleted"}
    return Change("d", "", row, None) if value.get("__deleted") == "true" else Change("c", "", None, row)


def _definition(value: Any) -> Change:
    if "ddl" not in value:
        raise KeyError("op")
    return Change("")


_FLUVIO_ROWS = {"Add": ("c", None, "cols"), "Update": ("u", "before_cols", "after_cols"), "Delete": ("d", "cols", None)}


def _fluvio(value: Any) -> Change:
    ((kind, operation),) = value["operation"].items()
    names = [unquote(name) for name in value["uri"].removeprefix("flv://").split("/")[1:]]
    if kind == "Query":
        return _statement(operation, names[0])
    op, before, after = _FLUVIO_ROWS[kind]
    (row,) = operation["rows"]

    def image(cells: str | None) -> Row | None:
        if cells is None:
            return None
        values = (None if cell == "Null" else next(iter(cell.values())) for cell in row[cells])
        return dict(zip(value["columns"], values, strict=True))

    return Change(op, ".".join(names), image(before), image(after))


def _statement(sql: str, database: str) -> Change:
    """What a statement does to rows, by its text; nobody knows that of one whose text is hidden."""
    read = read_statement(sql, SessionContext(database))
    if read.kind is StatementKind.TRUNCATE:
        return Change("t", f"{read.tables[0].database}.{read.tables[0].table}")
    return Change("q" if read.changes_rows or not sql else "")


class _AvroRecords:
    """Loads Avro in Confluent's framing, by the schema that each record names."""

    def __init__(self, schema_text: SchemaText) -> None:
        self._schema_text = schema_text
        self._readers: dict[int, AvroReader] = {}

    def __call__(self, record: bytes) -> Any:
        number, data = schema_number(record)
        if number not in self._readers:
            text = self._schema_text(number)
            if text is None:
                raise ValueError(f"the registry has no schema {number}")
            self._readers[number] = AvroReader(text)
        return self._readers[number].read(data)
