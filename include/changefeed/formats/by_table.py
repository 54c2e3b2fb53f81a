"""The formats of a pipeline some of whose tables have one of their own."""

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
    """A `Format` that writes each table in the format that ``choose`` names for (database, table), one of ``formats``.

    What is about no table, or about several, is in the first of them: the usual one. How values and rows are written
    differs by table, so whoever needs `style` or `notation` of a table asks `of_table` for its format first.
    """

    formats: Sequence[Format]
    choose: Callable[[str, str], Format]

    @property
    def usual(self) -> Format:
        """The format of tables without one of their own."""
        return self.formats[0]

    @property
    def style(self) -> Style:
        """That of the usual one."""
        return self.usual.style

    @property
    def notation(self) -> Notation:
        """That of the usual one."""
        return self.usual.notation

    @property
    def needs_definitions(self) -> bool:
        """Whether any of them does."""
        return any(format.needs_definitions for format in self.formats)

    @property
    def numbering(self) -> Numbering | None:
        """Those of all of them, each of which knows its own values."""
        numberings = [each for format in self.formats if (each := numbering_of(format)) is not None]
        if not numberings:
            return None
        return lambda value, number: reduce(lambda made, each: each(made, number), numberings, value)

    def messages(self, table: TableSchema) -> Messages:
        """Those of the table's format."""
        return self.choose(table.database, table.table).messages(table)

    def key(self, table: TableSchema) -> Template | None:
        """That of the table's format."""
        return self.choose(table.database, table.table).key(table)

    def value(self, table: TableSchema, op: Op) -> Template:
        """That of the table's format."""
        return self.choose(table.database, table.table).value(table, op)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """That of the table's format."""
        return self.choose(table.database, table.table).truncate(statement, table)

    def reader(self, schemas: SchemaText | None = None) -> RecordReader | None:
        """That of the usual one."""
        return self.usual.reader(schemas)

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """That of the usual one."""
        return self.usual.schema_change(statement, kind, changes)

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """That of the usual one."""
        return self.usual.statement(statement, tables, hide_sql=hide_sql)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """Those of the usual one."""
        return self.usual.statement_headers(statement)


FormatT = TypeVar("FormatT", bound=RowFormat)


def of_table(format: FormatT, database: str, table: str) -> FormatT:
    """The format that a table is written in, where ``format`` is a pipeline's."""
    return cast(FormatT, format.choose(database, table)) if isinstance(format, FormatsByTable) else format


def all_formats(format: RowFormat) -> Sequence[RowFormat]:
    """The formats that the tables of a pipeline may have, where ``format`` is the pipeline's; the usual one first."""
    return format.formats if isinstance(format, FormatsByTable) else (format,)


def each_format(format: Format, changed: Callable[[Format], RowFormat]) -> RowFormat:
    """What ``changed`` makes of the format of each table, where ``format`` is a pipeline's."""
    if not isinstance(format, FormatsByTable):
        return changed(format)
    rows = {id(each): cast(Format, changed(each)) for each in format.formats}  # of statements nothing is asked
    usual = rows[id(format.usual)]
    return FormatsByTable(
        list(rows.values()), lambda database, table: rows.get(id(format.choose(database, table)), usual)
    )
