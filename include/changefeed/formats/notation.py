"""Notations of formats: they join column values to rows, name columns, and write absent values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import orjson

from changefeed.formats.connect_types import ConnectSchema
from changefeed.formats.template import Slot
from changefeed.model.table_schema import Column
from changefeed.records.varint import encode_bytes, encode_varint


@dataclass(frozen=True)
class ColumnText:
    """The texts around the value of one column."""

    value: bytes
    """The text before a value."""
    null: bytes | None
    """The text of a column that is NULL, with its name. If it is empty, the column is left out. None: NULL is an error.
    """
    missing: bytes | None = b""
    """The text of a column that the row image does not have (binlog_row_image=MINIMAL). If it is empty, the column is
    left out. None: a missing column is an error."""
    after: bytes = b""
    """The text after a value."""


class Binary(Protocol):
    """The binary form of values and slots in a notation.

    - Integers are zigzag varints (`changefeed.records.varint`).
    - Texts and bytes follow their length, which is such a varint.
    - Single and double floats have the bytes that they have in memory.
    """

    def type_of(self, column: Column) -> ConnectSchema:
        """The type of the values of ``column``."""
        ...

    def value(self, column: Column, value: object) -> bytes:
        """The bytes of ``value`` in ``column``, the reference for the kernel. ``value`` is as in the Style's JSON."""
        ...

    def before(self, slot: Slot) -> bytes:
        """The bytes before the value of ``slot``, if there is a value."""
        ...


class Notation(Protocol):
    """The bytes of a format around column values, the same for all rows of a table.

    The bytes need not be text. A row is ``opening``, its columns separated by ``separator``, and ``closing``.
    """

    @property
    def binary(self) -> Binary | None:
        """The binary form of values and slots; None in a notation of text, with values in JSON and decimal digits."""
        ...

    @property
    def opening(self) -> bytes:
        """The text before the first column of a row."""
        ...

    @property
    def separator(self) -> bytes:
        """The text between two columns of a row."""
        ...

    @property
    def closing(self) -> bytes:
        """The text after the last column of a row."""
        ...

    def column(self, column: Column) -> ColumnText:
        """The texts around the value of ``column``."""
        ...

    def of(self, slot: Slot) -> Notation:
        """The notation of the rows of ``slot``, in most formats the same for all slots.

        Equal notations must have the same hash.
        """
        ...

    def absent(self, slot: Slot) -> bytes:
        """The bytes of ``slot`` without a value.

        Examples are the before image of a create, a GTID if the server has none, and a statement's text if the binlog
        does not have it.
        """
        ...

    def text(self, text: str) -> bytes:
        """The bytes of a string that replaces a column's value, for masks."""
        ...


@dataclass(frozen=True)
class JsonNotation:
    """The notation of JSON: a row is an object without the columns missing in its image; absent values are `null`."""

    opening: bytes = b"{"
    separator: bytes = b","
    closing: bytes = b"}"
    binary: None = None

    def column(self, column: Column) -> ColumnText:
        """`"name":` before a value, `"name":null` for NULL."""
        name = json_string(column.name) + b":"
        return ColumnText(name, name + b"null")

    def of(self, slot: Slot) -> Notation:  # noqa: ARG002 - all alike
        """This notation for all slots."""
        return self

    def absent(self, slot: Slot) -> bytes:  # noqa: ARG002 - all alike
        """JSON's null, for each slot."""
        return b"null"

    def text(self, text: str) -> bytes:
        """A JSON string."""
        return json_string(text)


JSON = JsonNotation()
"""The notation of JSON formats."""


def slot_text(notation: Notation, slot: Slot, text: str) -> bytes:
    """The bytes for ``slot`` with ``text``."""
    if notation.binary is not None:
        return notation.binary.before(slot) + encode_bytes(text.encode("utf-8", "replace"))
    return json_string(text) if slot in _QUOTED else text.encode()


def slot_number(notation: Notation, slot: Slot, number: int) -> bytes:
    """The bytes for ``slot`` with ``number``."""
    if notation.binary is not None:
        return notation.binary.before(slot) + encode_varint(number)
    return b"%d" % number


_QUOTED = frozenset({Slot.GTID, Slot.QUERY, Slot.XID})
"""The slots whose texts are JSON strings in a notation of text."""


def json_string(text: str) -> bytes:
    """``text`` as a JSON string, as the kernel writes it. Each half of a surrogate pair becomes `?`."""
    return orjson.dumps(text.encode("utf-8", "replace").decode())
