"""Formats by table, for a pipeline with several formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar, cast

from changefeed.formats.format import Format, Numbering, RowFormat, TableChange, numbering_of
from changefeed.formats.notation import Notation
from changefeed.formats.reader import RecordReader, SchemaText
from changefeed.formats.style import Style
from changefeed.formats.template import Messages, Op, Template
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Header


@dataclass(frozen=True)
class FormatsByTable:
    """A `Format` that writes each table in the format that ``choose`` returns for (database, table).

    ``choose`` returns one of ``formats``. The first is the usual format: records about several tables or about no table
    are in it. `style` and `notation` differ by table, so call `of_table` before you use them.
    """

    formats: Sequence[Format]
    choose: Callable[[str, str], Format]

    @property
    def usual(self) -> Format:
        """The format of tables without one of their own."""
        return self.formats[0]

    @property
    def style(self) -> Style:
        """The style of the usual format."""
        return self.usual.style

    @property
    def notation(self) -> Notation:
        """The notation of the usual format."""
        return self.usual.notation

    @property
    def needs_definitions(self) -> bool:
        """Whether any of the formats needs definitions."""
        return any(format.needs_definitions for format in self.formats)

    @property
    def numbering(self) -> Numbering | None:
        """The numbering functions of all formats as one. Each changes only values of its own format."""
        numberings = [each for format in self.formats if (each := numbering_of(format)) is not None]
        if not numberings:
            return None
        return lambda value, number: reduce(lambda made, each: each(made, number), numberings, value)

    def messages(self, table: TableSchema) -> Messages:
        """The messages in the table's format."""
        return self.choose(table.database, table.table).messages(table)

    def key(self, table: TableSchema) -> Template | None:
        """The key in the table's format."""
        return self.choose(table.database, table.table).key(table)

    def value(self, table: TableSchema, op: Op) -> Template:
        """The value in the table's format."""
        return self.choose(table.database, table.table).value(table, op)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """The record of TRUNCATE in the table's format."""
        return self.choose(table.database, table.table).truncate(statement, table)

    def reader(self, schemas: SchemaText | None = None) -> RecordReader | None:
        """The reader of the usual format."""
        return self.usual.reader(schemas)

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """The record in the usual format."""
        return self.usual.schema_change(statement, kind, changes)

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """The record in the usual format."""
        return self.usual.statement(statement, tables, hide_sql=hide_sql)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """The headers of the usual format."""
        return self.usual.statement_headers(statement)


FormatT = TypeVar("FormatT", bound=RowFormat)


def of_table(format: FormatT, database: str, table: str) -> FormatT:
    """The format of a table, if ``format`` is the format of its pipeline."""
    return cast(FormatT, format.choose(database, table)) if isinstance(format, FormatsByTable) else format


def all_formats(format: RowFormat) -> Sequence[RowFormat]:
    """All formats of a pipeline's ``format``, the usual one first."""
    return format.formats if isinstance(format, FormatsByTable) else (format,)


def each_format(format: Format, changed: Callable[[Format], RowFormat]) -> RowFormat:
    """A pipeline's ``format`` in which ``changed`` is applied to the format of each table."""
    if not isinstance(format, FormatsByTable):
        return changed(format)
    rows = {id(each): cast(Format, changed(each)) for each in format.formats}  # used for rows, not for statements
    usual = rows[id(format.usual)]
    return FormatsByTable(
        list(rows.values()), lambda database, table: rows.get(id(format.choose(database, table)), usual)
    )
