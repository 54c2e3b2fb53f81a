"""Debezium's envelope read back: which row of which table changed, from what to what, and where in the binlog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.errors import BadRecordError, SchemaError, SettingsError
from changefeed.formats.format import Format
from changefeed.formats.style import Style
from changefeed.formats.typed_values import WRONG, Value, ValueReader, inexact, reader_of, refusal
from changefeed.table_schema import TableSchema

JsonImage = Mapping[str, Any]
"""A row image as a message has it: column name -> what the format's Style wrote. Columns that the binlog's row image
did not hold (binlog_row_image=MINIMAL) are not in it."""


@dataclass(frozen=True)
class Envelope:
    """A message of a row change, or of a statement (``op`` t and q), whose images are None."""

    op: str
    database: str
    table: str
    before: JsonImage | None
    after: JsonImage | None
    file: str
    position: int
    gtid: str
    """'' where the source has no GTIDs."""
    fields: Mapping[str, Any]
    """All that the message says."""

    @classmethod
    def of(cls, value: bytes) -> Envelope:
        """Read a message's value, with its schema or without; raises BadRecordError for one that is no envelope."""
        try:
            fields = orjson.loads(value)
            if "payload" in fields and "schema" in fields:
                fields = fields["payload"]
            source = fields["source"]
            return cls(
                fields["op"],
                source["db"],
                source["table"] or "",
                fields["before"],
                fields["after"],
                source["file"],
                source["pos"],
                source["gtid"] or "",
                fields,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BadRecordError(
                f"{value[:200]!r} is no envelope of Debezium's ({error!r}): something else than this pipeline writes "
                "to its topic, or it had another format before"
            ) from error


class RowValues:
    """Reads images of ``table``, which has to be as it was when the row was changed."""

    def __init__(self, table: TableSchema, style: Style) -> None:
        self._table = table
        self._readers: dict[str, ValueReader] = {column.name: reader_of(column, style) for column in table.columns}

    def of(self, image: JsonImage) -> dict[str, Value]:
        """The values of ``image`` by column name, in its order.

        Raises SchemaError for a column that the table does not have, and for a value that its column cannot have.
        """
        readers = self._readers
        try:
            return {name: None if value is None else readers[name](value) for name, value in image.items()}
        except WRONG as error:
            raise self._refusal(image, error) from error

    def _refusal(self, image: JsonImage, error: Exception) -> SchemaError:
        columns = {column.name: column for column in self._table.columns}
        for name, value in image.items():
            if name not in columns:
                return SchemaError(
                    f"a row has a column {name!r}, and {self._table.database}.{self._table.table} has none of that "
                    "name: the table is not as it was when the row was changed"
                )
            try:
                value is None or self._readers[name](value)
            except WRONG as wrong:
                return refusal(columns[name], value, wrong)
        return SchemaError(f"a row of {self._table.database}.{self._table.table} cannot be read: {error}")


def check_readable(name: str, format: Format) -> None:
    """Raises SettingsError where the messages of ``format``, which pipelines call ``name``, cannot be read back as the
    rows that they were made of: whoever applies or compares them would not know what the source holds."""
    if name not in READABLE:
        raise SettingsError(
            f"messages of format {name!r} are not read back: wanted {READABLE[0]}, whose records say each "
            "change in full"
        )
    lost = inexact(format.style)
    if lost:
        raise SettingsError(
            f"messages of format {name!r} as this pipeline writes them lose values: {'; '.join(lost.values())}. Write "
            "`values: {decimal: string, temporal: iso, documents: text}`"
        )


READABLE = ("debezium", "debezium-json")
"""The formats whose messages are read back."""
