"""The interface of wire formats: keys, values and headers of messages for row changes and statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from changefeed.errors import SettingsError
from changefeed.formats.notation import Notation
from changefeed.formats.reader import RecordReader, SchemaText
from changefeed.formats.schema_ids import LocalIds, SchemaIds
from changefeed.formats.style import DEFAULT_STYLE, Style
from changefeed.formats.template import Messages, Op, Template
from changefeed.formats.typed_values import inexact
from changefeed.model.message_key import Keyless
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.model.user_pattern import UserPattern
from changefeed.records.block import Header

TableChange = tuple[str, str, TableSchema | None]
"""(database, table, the table's schema after a statement). The schema is None for a removed or unknown table."""


@dataclass(frozen=True)
class TableKey:
    """The columns of the message key, for the tables whose "database.table" matches ``tables`` completely."""

    tables: UserPattern
    columns: tuple[str, ...]


@dataclass(frozen=True)
class RowRules:
    """The options of a format about published rows and their keys.

    - ``skipped``: ops whose rows are not published
    - ``unchanged_skipped``: whether updates that change no published column are skipped
    - ``keys``: the key columns of tables
    - ``in_place_of``: the name of the option by the pipeline's setting that it replaces
    - ``keyless``: the default of the pipeline's setting `keyless`
    """

    skipped: frozenset[str] = frozenset()
    unchanged_skipped: bool = False
    keys: tuple[TableKey, ...] = ()
    in_place_of: Mapping[str, str] = field(default_factory=dict)
    keyless: Keyless = "none"

    def key_columns(self, database: str, table: str) -> tuple[str, ...]:
        """The key columns of all patterns that match the table; () if no pattern matches."""
        taken = (key.columns for key in self.keys if key.tables.fullmatch(f"{database}.{table}"))
        return tuple(dict.fromkeys(column for columns in taken for column in columns))


@dataclass(frozen=True)
class FormatSettings:
    """The settings of a pipeline for its format.

    ``server_name`` is the pipeline's name. ``ts_ms`` is the time at which the window was frozen, in milliseconds since
    1970. A retry has the same time, so that it writes the same bytes.
    """

    server_name: str
    ts_ms: int
    style: Style = DEFAULT_STYLE
    tombstones: bool = True
    schema_ids: SchemaIds = field(default_factory=LocalIds)
    options: Mapping[str, object] = field(default_factory=dict)
    """The format's own options by name, as in the YAML. The format checks them with `formats.options`."""


class RowFormat(Protocol):
    """The part of a format that decoders use: how it writes row changes."""

    @property
    def style(self) -> Style:
        """The encodings of column values."""
        ...

    @property
    def notation(self) -> Notation:
        """The notation that joins values to rows and writes absent values."""
        ...

    @property
    def needs_definitions(self) -> bool:
        """Whether messages have column properties from DDL, such as defaults.

        If so, decoding needs a table's schema even if the binlog has the column names."""
        ...

    def messages(self, table: TableSchema) -> Messages:
        """The messages of each kind of change of a row of ``table``.

        A table without a key has no change of key: each update is an ordinary update.
        """
        ...

    def key(self, table: TableSchema) -> Template | None:
        """The message key; None for a table without a primary key, whose messages have a null key."""
        ...

    def value(self, table: TableSchema, op: Op) -> Template:
        """The message value for a row change of ``op``."""
        ...


@runtime_checkable
class Shown(Protocol):
    """A format with binary messages that it can convert to JSON."""

    def show(self, message: bytes) -> bytes:
        """The JSON of a key or a value. The format must have returned the templates of its table before."""
        ...


@dataclass(frozen=True)
class TransactionRecords:
    """The records of the begin and end of transactions: their ``topic``, and the templates of their key and values.

    The templates have `Slot.TRANSACTION_ID`, the slots after it, and times.
    """

    topic: str
    key: Template
    begin: Template
    end: Template


@runtime_checkable
class Transactional(Protocol):
    """A format whose messages may have their position in the transaction."""

    @property
    def transactions(self) -> TransactionRecords | None:
        """The records of transactions; None if messages have no position in the transaction."""
        ...


@runtime_checkable
class Joining(Protocol):
    """A format that may have all rows of a binlog event in one message."""

    @property
    def joins_rows(self) -> bool:
        """Whether values have the form of `template.join_rows`."""
        ...


def joins_rows(format: RowFormat) -> bool:
    """Whether a message of ``format`` has all rows of an event."""
    return isinstance(format, Joining) and format.joins_rows


Numbering = Callable[[bytes, int], bytes]
"""(value, number) -> the value with the number of its message in the topic-partition, from 0.

A value of another format is returned unchanged."""


@runtime_checkable
class Numbered(Protocol):
    """A format whose messages may have their number in the topic-partition."""

    @property
    def numbering(self) -> Numbering | None:
        """The function that sets the number in a value; None if values have no number."""
        ...


def numbering_of(format: RowFormat) -> Numbering | None:
    """The function that sets the number in values of ``format``; None if values have no number."""
    return format.numbering if isinstance(format, Numbered) else None


@runtime_checkable
class Naming(Protocol):
    """A format that may send records of a statement to each table that the statement names."""

    @property
    def statements_to_named(self) -> bool:
        """Whether the record of a change in statement format also goes to tables that the statement only reads."""
        ...


def statements_to_named(format: RowFormat) -> bool:
    """Whether ``format`` sends records of changes in statement format also to tables that the statement only reads."""
    return isinstance(format, Naming) and format.statements_to_named


def transactions_of(format: RowFormat) -> TransactionRecords | None:
    """The records of transactions in ``format``, None if it has none.

    Without such records, no message has `Slot.TRANSACTION`.
    """
    return format.transactions if isinstance(format, Transactional) else None


@runtime_checkable
class Ruling(Protocol):
    """A format with options about rows."""

    @property
    def row_rules(self) -> RowRules:
        """The row rules of the options."""
        ...


def row_rules_of(format: RowFormat) -> RowRules:
    """The row rules of ``format``; the defaults if it has no such options."""
    return format.row_rules if isinstance(format, Ruling) else RowRules()


@runtime_checkable
class Extensible(Protocol):
    """A format that limits the members that functions may add."""

    def member_fault(self, name: str, value: object) -> str | None:
        """The reason why records cannot have a member ``name`` with ``value``; None if they can."""
        ...


def member_fault(format: RowFormat, name: str, value: object) -> str | None:
    """The reason why records of ``format`` cannot have a further member ``name`` with ``value``; None if they can."""
    if format.notation.binary is not None:
        return NO_PLACE_IN_SCHEMA
    return format.member_fault(name, value) if isinstance(format, Extensible) else None


NO_PLACE_IN_SCHEMA = (
    'the schema of the records has no place for it. Set it in the rows (`for row in change.rows: row["NAME"] = ...`), '
    "and it is a column of the schema; or choose a format without schemas"
)


class Format(RowFormat, Protocol):
    """One wire format, which `formats.registry` finds by its name.

    With the same settings, a format writes the same bytes for the same change.
    """

    def reader(self, schemas: SchemaText | None = None) -> RecordReader | None:
        """The reader of the format's records, with the schemas of a registry if it uses one.

        None for a format without a reader. Topics of such a format cannot be verified or replicated."""
        ...

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """The value of a schema change record: ``kind`` is the verb (CREATE, ALTER …), ``changes`` are the tables that
        the statement changed."""
        ...

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """The value of the record of a TRUNCATE of ``table``; None if the format has no such record.

        ``table`` has no columns if they are not known.
        """
        ...

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """The value of the record of a change in statement format, whose rows are not known.

        ``tables`` are (database, table) of the tables that the statement changed. With ``hide_sql`` the value must not
        have the statement's text.
        """
        ...

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """The headers of all records of ``statement``, except event id and GTID."""
        ...


def record_reader(format: Format, schemas: SchemaText | None = None) -> RecordReader:
    """The reader of ``format``, with ``schemas`` or the format's own schemas.

    Raises SettingsError for a format without a reader.
    """
    reader = format.reader(schemas)
    if reader is None:
        raise SettingsError(
            "records of the pipeline's format are not read back, so there is nothing to compare: its package brings "
            "no reader of them"
        )
    return reader


def envelope_reader(name: str, format: Format) -> RecordReader:
    """The reader of ``format`` for followers, which has `envelopes`.

    ``name`` is the name of ``format``. Raises SettingsError if its messages lose values of the source's rows.
    """
    reader = format.reader(None)
    if reader is None or reader.envelopes is None:
        raise SettingsError(
            f"messages of format {name!r} are not read back: expected one whose records say each change in full, as "
            "those of debezium, event and fluvio do"
        )
    lost = {kind: why for kind, why in inexact(format.style).items() if kind not in reader.exact}
    if lost:
        raise SettingsError(
            f"messages of format {name!r} as this pipeline writes them lose values: {'; '.join(lost.values())}. Write "
            "`values: {decimal: string, temporal: iso, documents: text}`"
        )
    return reader
