"""The contract of readers of slices: the decoder with the kernel, and the reference reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock


class SliceReader(Protocol):
    """Decodes slices into blocks of messages."""

    def read(self, slice: Slice) -> Iterator[MessageBlock | SliceReport]:
        """Yield the blocks of ``slice``, in binlog order for each topic-partition, and last one SliceReport.

        A reader must count the bytes and read exactly ``[start, end)``. For each event one of these is true: the reader
        decodes it, or its type is in the list of types without changes, or the reader raises an error.

        Raises BinlogFormatError, with coordinates, for bytes that cannot be decoded, SchemaError if a table's columns
        are not known, SourceUnavailableError for a lost connection, BinlogGoneError for a missing file.
        """
        ...
