"""The header of snapshot rows for followers, which apply changes in the order of the source."""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.formats.headers import WithHeaders
from changefeed.formats.template import RowMessage
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import READ_HEADER


@dataclass(frozen=True)
class ReadHeader:
    """The value of the header of a snapshot row.

    At the coordinates ``base``, each row of the chunk was as the snapshot read it: from there to the chunk's
    publication no change touched it. ``snapshot`` is the identity of the snapshot.
    """

    base: BinlogCoordinates
    snapshot: str

    def to_bytes(self) -> bytes:
        """The header's bytes, which `of` reads."""
        return f"{self.base}/{self.snapshot}".encode()

    @classmethod
    def of(cls, value: bytes) -> ReadHeader:
        """The value from bytes of `to_bytes`; raises ValueError for invalid bytes."""
        base, _, snapshot = value.decode().partition("/")
        return cls(BinlogCoordinates.parse(base), snapshot)


@dataclass(frozen=True)
class WithReadHeader(WithHeaders):
    """The messages of ``format`` with the header ``read``, after the headers that the format adds."""

    read: bytes = b""

    def _with_headers(self, table: TableSchema, message: RowMessage) -> RowMessage:  # noqa: ARG002 - each table's
        return replace(message, headers=(*message.headers, (READ_HEADER, (self.read,))))
