"""What a wire format is: how row changes and statements become the keys, values and headers of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from changefeed.block import Header
from changefeed.formats.notation import Notation
from changefeed.formats.schema_ids import LocalIds, SchemaIds
from changefeed.formats.style import DEFAULT_STYLE, Style
from changefeed.formats.template import Messages, Op, Template
from changefeed.reader import Statement
from changefeed.table_schema import TableSchema

TableChange = tuple[str, str, TableSchema | None]
"""(database, table, its columns after a statement); None for a table that is gone or not known."""


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


class Format(RowFormat, Protocol):
    """One wire format: `formats.registry` has each under the name that pipelines call it by.

    A format is a value: the same settings make the same bytes of the same change.
    """

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
