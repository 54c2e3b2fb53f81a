"""The header that rows of a snapshot have for who applies them in the source's order: a follower."""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.formats.headers import WithHeaders
from changefeed.formats.template import RowMessage
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import READ_HEADER


@dataclass(frozen=True)
class ReadHeader:
    """``base`` are coordinates at which each row of a chunk was as it was read: no change from there on until it was
    published touched it. ``snapshot`` is the identity of the snapshot."""

    base: BinlogCoordinates
    snapshot: str

    def to_bytes(self) -> bytes:
        """The header's value, for `of`."""
        return f"{self.base}/{self.snapshot}".encode()

    @classmethod
    def of(cls, value: bytes) -> ReadHeader:
        """Raises ValueError for a value that is none."""
        base, _, snapshot = value.decode().partition("/")
        return cls(BinlogCoordinates.parse(base), snapshot)


@dataclass(frozen=True)
class WithReadHeader(WithHeaders):
    """The messages of ``format``, each with the header ``read`` behind its own."""

    read: bytes = b""

    def _with_headers(self, table: TableSchema, message: RowMessage) -> RowMessage:  # noqa: ARG002 - each table's
        return replace(message, headers=(*message.headers, (READ_HEADER, (self.read,))))
