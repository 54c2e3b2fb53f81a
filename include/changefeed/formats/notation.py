"""How a format puts column values together: what opens, separates and closes a row, what names a column, what is
absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import orjson

from changefeed.formats.template import Slot
from changefeed.table_schema import Column


@dataclass(frozen=True)
class ColumnText:
    """What a row has of one column besides its value."""

    value: bytes
    """Stands before a value."""
    null: bytes
    """Stands for a column that is NULL, name and all; empty leaves the column out."""
    missing: bytes = b""
    """Stands for a column that the row image does not hold (binlog_row_image=MINIMAL); empty leaves the column out."""
    after: bytes = b""
    """Stands behind a value."""


class Notation(Protocol):
    """A format's own bytes around column values, the same for each row of a table: none needs to be text.

    A row is ``opening``, its columns with ``separator`` between them, ``closing``.
    """

    @property
    def opening(self) -> bytes:
        """What a row begins with."""
        ...

    @property
    def separator(self) -> bytes:
        """What stands between two columns of a row."""
        ...

    @property
    def closing(self) -> bytes:
        """What a row ends with."""
        ...

    def column(self, column: Column) -> ColumnText:
        """What is written of ``column`` besides its value."""
        ...

    def of(self, slot: Slot) -> Notation:
        """The notation of the rows that fill ``slot``: for most formats this one, whatever the slot.

        Notations that are equal have the same hash.
        """
        ...

    def absent(self, slot: Slot) -> bytes:
        """What fills ``slot`` where there is nothing to fill it: the before image of a create, a GTID where the server
        has none, a statement's text that is not in the binlog."""
        ...

    def text(self, text: str) -> bytes:
        """A string that stands in a column's place: what a mask says instead of its values."""
        ...


@dataclass(frozen=True)
class JsonNotation:
    """A row is a JSON object without the columns that its image does not hold; what is absent is `null`."""

    opening: bytes = b"{"
    separator: bytes = b","
    closing: bytes = b"}"

    def column(self, column: Column) -> ColumnText:
        """`"name":` before a value, `"name":null` for NULL."""
        name = json_string(column.name) + b":"
        return ColumnText(name, name + b"null")

    def of(self, slot: Slot) -> Notation:  # noqa: ARG002 - all alike
        """This one: all rows are alike."""
        return self

    def absent(self, slot: Slot) -> bytes:  # noqa: ARG002 - all alike
        """JSON's null, for each slot."""
        return b"null"

    def text(self, text: str) -> bytes:
        """A JSON string."""
        return json_string(text)


JSON = JsonNotation()
"""The notation of all formats that are JSON."""


def json_string(text: str) -> bytes:
    """``text`` as a JSON string, spelled as the kernel spells it; `?` for each half of a surrogate pair."""
    return orjson.dumps(text.encode("utf-8", "replace").decode())
