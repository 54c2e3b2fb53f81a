"""How a format puts column values together: what opens, separates and closes a row, what names a column, what is
absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import orjson

from changefeed.formats.connect_types import ConnectSchema
from changefeed.formats.template import Slot
from changefeed.model.table_schema import Column
from changefeed.records.varint import written_part, written_varint


@dataclass(frozen=True)
class ColumnText:
    """What a row has of one column besides its value."""

    value: bytes
    """Stands before a value."""
    null: bytes | None
    """Stands for a column that is NULL, name and all; empty leaves the column out, None refuses the row."""
    missing: bytes | None = b""
    """Stands for a column that the row image does not hold (binlog_row_image=MINIMAL); empty leaves the column out,
    None refuses the row."""
    after: bytes = b""
    """Stands behind a value."""


class Binary(Protocol):
    """How a notation writes values and slots that are no text: integers as zigzag varints, texts and bytes behind their
    length as such a varint (`changefeed.records.varint`), single and double floats as they are in memory."""

    def type_of(self, column: Column) -> ConnectSchema:
        """What values of ``column`` are written as."""
        ...

    def value(self, column: Column, value: object) -> bytes:
        """``value``, as the format's Style writes it in JSON, of ``column``: what the kernel is held against."""
        ...

    def before(self, slot: Slot) -> bytes:
        """What stands before that which fills ``slot``, where something does."""
        ...


class Notation(Protocol):
    """A format's own bytes around column values, the same for each row of a table: none needs to be text.

    A row is ``opening``, its columns with ``separator`` between them, ``closing``.
    """

    @property
    def binary(self) -> Binary | None:
        """How values and slots are written in binary; None in a notation of text: values are JSON, numbers digits."""
        ...

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
    binary: None = None

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


def slot_text(notation: Notation, slot: Slot, text: str) -> bytes:
    """What fills ``slot`` with ``text``."""
    if notation.binary is not None:
        return notation.binary.before(slot) + written_part(text.encode("utf-8", "replace"))
    return json_string(text) if slot in _QUOTED else text.encode()


def slot_number(notation: Notation, slot: Slot, number: int) -> bytes:
    """What fills ``slot`` with ``number``."""
    if notation.binary is not None:
        return notation.binary.before(slot) + written_varint(number)
    return b"%d" % number


_QUOTED = frozenset({Slot.GTID, Slot.QUERY, Slot.XID})
"""The texts that are JSON strings in a notation of text."""


def json_string(text: str) -> bytes:
    """``text`` as a JSON string, spelled as the kernel spells it; `?` for each half of a surrogate pair."""
    return orjson.dumps(text.encode("utf-8", "replace").decode())
