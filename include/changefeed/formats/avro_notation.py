"""The notation of Avro's binary encoding: the columns of a row follow each other, without names."""

from __future__ import annotations

from dataclasses import dataclass, field

from changefeed.formats import connect_types
from changefeed.formats.avro_binary import FIRST, SECOND, encode, is_null_first
from changefeed.formats.column_defaults import EPOCH_TEXT, bytes_as_text, with_default
from changefeed.formats.connect_schema import value_schema
from changefeed.formats.connect_types import ConnectSchema
from changefeed.formats.notation import ColumnText
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import Slot
from changefeed.model.table_schema import Column
from changefeed.records.varint import encode_bytes

_BEFORE = {
    Slot.SNAPSHOT: FIRST,
    Slot.TS_MICROS: SECOND,
    Slot.TS_NANOS: SECOND,
    Slot.GTID: SECOND,
    Slot.QUERY: SECOND,
    Slot.XID: SECOND,
}
"""The union branch of each slot whose field is optional. `snapshot` has a default, which is the first branch."""
_ZEROS: dict[str | None, object] = {
    connect_types.DATE: 0,
    connect_types.TIMESTAMP: 0,
    connect_types.MICRO_TIMESTAMP: 0,
    connect_types.ZONED_TIMESTAMP: EPOCH_TEXT,
}
"""The value that Debezium writes for an invalid date in a NOT NULL column."""


@dataclass(frozen=True)
class AvroNotation:
    """The notation in which a row is an Avro record.

    ``style`` chooses the types of its fields. With ``binary_text``, bytes are written as text. A row image without all
    columns is an error, because a record has all of its fields.
    """

    style: Style = field(hash=False)
    binary_text: bool = False
    opening: bytes = b""
    separator: bytes = b""
    closing: bytes = b""
    _types: dict[Column, ConnectSchema] = field(default_factory=dict, compare=False, repr=False)

    @property
    def binary(self) -> AvroNotation:
        """This notation."""
        return self

    def type_of(self, column: Column) -> ConnectSchema:
        """The schema of the column's field, with its default."""
        known = self._types.get(column)
        if known is None:
            encoding = self.style[Kind.BINARY]
            bytes_style = Style({**self.style.chosen, Kind.BINARY: Encoding.BASE64})
            known = with_default(value_schema(column, bytes_style), column)
            if self.binary_text or encoding is not Encoding.BASE64:
                known = bytes_as_text(known, encoding)
            self._types[column] = known
        return known

    def column(self, column: Column) -> ColumnText:
        """The bytes around a value: the branch of an optional column. An invalid date in a NOT NULL column is 1970."""
        schema = self.type_of(column)
        if not schema.optional:
            zero = _ZEROS.get(schema.name)
            return ColumnText(b"", None if zero is None else encode(schema, zero), None)
        null, value = (FIRST, SECOND) if is_null_first(schema) else (SECOND, FIRST)
        return ColumnText(value, null, None)

    def of(self, slot: Slot) -> AvroNotation:  # noqa: ARG002 - all alike
        """This notation for all slots."""
        return self

    def value(self, column: Column, value: object) -> bytes:
        """See `Binary.value`."""
        schema = self.type_of(column)
        branch = len(FIRST) if schema.optional else 0
        return encode(schema, value)[branch:]

    def before(self, slot: Slot) -> bytes:
        """The branch of the slot's field in `source`; empty if the field is not optional."""
        return _BEFORE.get(slot, b"")

    def absent(self, slot: Slot) -> bytes:  # noqa: ARG002 - all alike
        """The first branch of an optional field without a default: null."""
        return FIRST

    def text(self, text: str) -> bytes:
        """A string with its length before it."""
        return encode_bytes(text.encode("utf-8", "replace"))
