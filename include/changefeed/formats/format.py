"""What a wire format is: how row changes and statements become the keys, values and headers of messages."""

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
"""(database, table, its columns after a statement); None for a table that is gone or not known."""


@dataclass(frozen=True)
class TableKey:
    """The columns that are the messages' key in the tables whose "database.table" matches ``tables`` whole."""

    tables: UserPattern
    columns: tuple[str, ...]


@dataclass(frozen=True)
class RowRules:
    """What options of a format say of which rows are published, and under which keys.

    ``skipped`` are ops that are left out, and with ``unchanged_skipped`` so are updates that change nothing of what is
    written. ``in_place_of`` has the option that was given by the pipeline's setting which it takes the place of.
    ``keyless`` is what counts where the pipeline does not say it.
    """

    skipped: frozenset[str] = frozenset()
    unchanged_skipped: bool = False
    keys: tuple[TableKey, ...] = ()
    in_place_of: Mapping[str, str] = field(default_factory=dict)
    keyless: Keyless = "none"

    def key_columns(self, database: str, table: str) -> tuple[str, ...]:
        """The key's columns; those of all patterns that take the table, and none where no pattern does."""
        taken = (key.columns for key in self.keys if key.tables.fullmatch(f"{database}.{table}"))
        return tuple(dict.fromkeys(column for columns in taken for column in columns))


@dataclass(frozen=True)
class FormatSettings:
    """What a pipeline says of its messages, for whichever format it names.

    ``server_name`` is the pipeline's name, ``ts_ms`` the time when its window was frozen, in milliseconds since 1970:
    the same at each retry, so that a retry makes the same bytes.
    """

    server_name: str
    ts_ms: int
    style: Style = DEFAULT_STYLE
    tombstones: bool = True
    schema_ids: SchemaIds = field(default_factory=LocalIds)
    options: Mapping[str, object] = field(default_factory=dict)
    """The format's own, by name, as the YAML has them: whoever makes the format checks them (`formats.options`)."""


class RowFormat(Protocol):
    """How row changes are written: what a decoder needs to know of a format."""

    @property
    def style(self) -> Style:
        """How column values are written."""
        ...

    @property
    def notation(self) -> Notation:
        """How values become rows, and what stands for what is absent."""
        ...

    @property
    def needs_definitions(self) -> bool:
        """Whether it says of columns what only their definitions know, such as defaults: a table's schema is looked up
        then even where its rows come with names."""
        ...

    def messages(self, table: TableSchema) -> Messages:
        """The messages that each kind of change of a row of ``table`` becomes.

        Tables without a key have no change of key: such an update is an update as any other.
        """
        ...

    def key(self, table: TableSchema) -> Template | None:
        """The message key; None for a table without a primary key: its messages have a null key."""
        ...

    def value(self, table: TableSchema, op: Op) -> Template:
        """The message value for a row change of ``op``."""
        ...


@runtime_checkable
class Shown(Protocol):
    """A format whose messages are no text, and which shows those that it has made as JSON."""

    def shown(self, message: bytes) -> bytes:
        """A key or a value of a table that the format has been asked about, as JSON."""
        ...


@dataclass(frozen=True)
class TransactionRecords:
    """Records of where transactions begin and end: ``topic`` that they go to, and the templates of their key and of
    both values. Their slots are `Slot.TRANSACTION_ID` and those behind it, and times."""

    topic: str
    key: Template
    begin: Template
    end: Template


@runtime_checkable
class Transactional(Protocol):
    """A format whose messages may say where in their transaction they stand."""

    @property
    def transactions(self) -> TransactionRecords | None:
        """The records that go with that; None where messages do not say it."""
        ...


@runtime_checkable
class Joining(Protocol):
    """A format that may have all rows of a binlog event in one message."""

    @property
    def joins_rows(self) -> bool:
        """Whether its values of rows are as `template.joined_rows` makes them."""
        ...


def joins_rows(format: RowFormat) -> bool:
    """Whether messages of ``format`` have all rows of an event."""
    return isinstance(format, Joining) and format.joins_rows


Numbering = Callable[[bytes, int], bytes]
"""A value and its message's number in the topic-partition, from 0 -> the value with that number. A value of another
format is returned as it is."""


@runtime_checkable
class Numbered(Protocol):
    """A format whose messages may say which number they have in their topic-partition."""

    @property
    def numbering(self) -> Numbering | None:
        """What gives a value its number; None where values have none."""
        ...


def numbering_of(format: RowFormat) -> Numbering | None:
    """What gives the values of ``format`` their numbers; None where they have none."""
    return format.numbering if isinstance(format, Numbered) else None


@runtime_checkable
class Naming(Protocol):
    """A format whose records of statements may go to each table that a statement names."""

    @property
    def statements_to_named(self) -> bool:
        """Whether the record of a change in statement format goes to tables that it only reads, too."""
        ...


def statements_to_named(format: RowFormat) -> bool:
    """Whether records of changes in statement format, written in ``format``, go to tables that they only read, too."""
    return isinstance(format, Naming) and format.statements_to_named


def transactions_of(format: RowFormat) -> TransactionRecords | None:
    """The records of transactions of ``format``, which has `Slot.TRANSACTION` in no message without such records."""
    return format.transactions if isinstance(format, Transactional) else None


@runtime_checkable
class Ruling(Protocol):
    """A format with options about rows."""

    @property
    def row_rules(self) -> RowRules:
        """What they say."""
        ...


def row_rules_of(format: RowFormat) -> RowRules:
    """What the options of ``format`` say of rows; nothing for a format without such options."""
    return format.row_rules if isinstance(format, Ruling) else RowRules()


class Format(RowFormat, Protocol):
    """One wire format: `formats.registry` finds it by the name that pipelines call it by.

    A format is a value: the same settings make the same bytes of the same change.
    """

    def reader(self, schemas: SchemaText | None = None) -> RecordReader | None:
        """What reads its records back, with the schemas of a registry where it has one; None where nothing does: such
        topics are neither verified nor replicated."""
        ...

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """The value of the record of a definition: ``kind`` is its verb (CREATE, ALTER …), ``changes`` what it did."""
        ...

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """The value of the record that says that ``table`` was emptied; it has no columns where they are not known.

        None for no record.
        """
        ...

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """The value of the record of a change in statement format, whose rows nobody knows.

        ``tables`` are (database, table) of those that it wrote. With ``hide_sql`` the value must not have its text.
        """
        ...

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """The record headers that all records of ``statement`` get, besides event id and GTID."""
        ...


def record_reader(format: Format, schemas: SchemaText | None = None) -> RecordReader:
    """What reads the records that ``format`` writes; their schemas are those of ``schemas``, or the format's own.

    Raises SettingsError for a format whose records are not read back.
    """
    reader = format.reader(schemas)
    if reader is None:
        raise SettingsError(
            "records of the pipeline's format are not read back, so there is nothing to compare: its package brings "
            "no reader of them"
        )
    return reader


def envelope_reader(name: str, format: Format) -> RecordReader:
    """What reads a follower's records, which has `envelopes`.

    Raises SettingsError where the messages of ``format``, which pipelines call ``name``, cannot be read back as the
    rows that they were made of: a follower would not know what the source holds.
    """
    reader = format.reader(None)
    if reader is None or reader.envelopes is None:
        raise SettingsError(
            f"messages of format {name!r} are not read back: wanted one whose records say each change in full, as "
            "those of debezium, event and fluvio do"
        )
    lost = {kind: why for kind, why in inexact(format.style).items() if kind not in reader.exact}
    if lost:
        raise SettingsError(
            f"messages of format {name!r} as this pipeline writes them lose values: {'; '.join(lost.values())}. Write "
            "`values: {decimal: string, temporal: iso, documents: text}`"
        )
    return reader
