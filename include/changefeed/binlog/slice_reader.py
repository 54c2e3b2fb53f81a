"""The contract of what decodes slices: the kernel's decoder and the reference reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock


class SliceReader(Protocol):
    """Decodes a slice into finished messages."""

    def read(self, piece: Slice) -> Iterator[MessageBlock | SliceReport]:
        """Yield the blocks of ``piece``, each topic-partition's in binlog order, and last one SliceReport.

        Obligations: reads exactly ``[start, end)`` by its own count of bytes; each event is decoded, or is of a
        type that is listed as carrying no change, or stops the slice.

        Raises BinlogFormatError (with coordinates) for bytes that cannot be decoded, SchemaError where a table's
        columns are not known, SourceUnavailableError for a lost connection, BinlogGoneError for a missing file.
        """
        ...
