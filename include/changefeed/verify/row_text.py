"""Messages of rows of which only key and row are written: what stands around a row is not compared."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.formats.by_table import FormatsByTable
from changefeed.formats.format import Format, RowFormat
from changefeed.formats.notation import Notation
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.table_schema import TableSchema
from changefeed.verify.changes import plain_format


@dataclass(frozen=True)
class RowText:
    """Key and row as ``format`` writes them."""

    format: RowFormat

    @property
    def style(self) -> Style:
        """That of ``format``."""
        return self.format.style

    @property
    def notation(self) -> Notation:
        """That of ``format``."""
        return self.format.notation

    @property
    def needs_definitions(self) -> bool:
        """As ``format`` says."""
        return self.format.needs_definitions

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the protocol's signature
        """One each."""
        return ONE_MESSAGE_EACH

    def key(self, table: TableSchema) -> Template | None:
        """That of ``format``."""
        return self.format.key(table)

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002 - the protocol's signature
        """The row."""
        return (Slot.AFTER,)


def row_texts(format: Format) -> RowFormat:
    """Of a pipeline's ``format`` what is compared by its text."""
    if not isinstance(format, FormatsByTable):
        return RowText(plain_format(format))
    rows = {id(each): RowText(plain_format(each)) for each in format.formats}
    usual = rows[id(format.formats[0])]
    return FormatsByTable(
        list(rows.values()),  # type: ignore[arg-type] # of statements nothing is asked
        lambda database, table: rows.get(id(format.choose(database, table)), usual),  # type: ignore[arg-type,return-value]
    )
