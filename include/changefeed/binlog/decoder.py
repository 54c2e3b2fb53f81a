"""The decoder of a server's binlog: converts the raw events of a slice into blocks of messages and a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from changefeed.binlog.groups import Buffers
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.binlog.programs.program import WrittenRows
from changefeed.binlog.programs.programs import Programs
from changefeed.binlog.slice_decoder import SliceDecoder
from changefeed.binlog.unfinished import RowTransformer
from changefeed.formats.format import RowFormat
from changefeed.formats.template import NO_SNAPSHOT
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules
from changefeed.model.route import Route, Router, SchemaLookup
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock

BLOCK_BYTES = 1 << 20


class KernelDecoder:
    """Decodes slices of one server's binlog; all slices use the same row programs.

    Not thread-safe.

    - ``router`` and ``schema_lookup`` are called once for each new table map. For table maps without names
      (binlog_row_metadata=MINIMAL) they are called again after each statement, and in each slice.
    - ``columns`` are omitted from the messages or masked in them. With such rules no message has a statement's text.
    - ``snapshot``: if set, WRITE_ROWS events have rows that a SELECT read. The op of these rows is r, and their
      `Slot.SNAPSHOT` is this text. If not set, `Slot.SNAPSHOT` is `false`.
    - ``on_statement`` is called with each statement, after the blocks of all earlier rows were yielded and before a
      later row is decoded, so that the caller can apply DDL to its schemas.
    - ``transactions`` is the route of the transaction records, if the format has them.
    - ``compared_as`` is the format, with its column rules, in which images are compared if a route skips unchanged
      rows. The default is the format of the messages.
    - ``finisher`` makes messages of the rows that the kernel leaves unfinished.

    The rows of an XA transaction are decoded at their own position. If ``prepared_rows`` is set, their messages come at
    the XA COMMIT instead. Set it again for each slice.
    """

    def __init__(
        self,
        router: Router,
        schema_lookup: SchemaLookup,
        format: RowFormat,
        server_uuid: str,
        *,
        columns: ColumnRules = ALL_SHOWN,
        snapshot: str = NO_SNAPSHOT,
        block_bytes: int = BLOCK_BYTES,
        on_statement: Callable[[Statement], None] | None = None,
        finisher: RowTransformer | None = None,
        transactions: Route | None = None,
        compared_as: WrittenRows | None = None,
    ) -> None:
        row_formats = {} if finisher is None else {"row_format": finisher.row_format}
        self.programs = Programs(
            router,
            schema_lookup,
            format,
            columns,
            snapshot,
            transactions=transactions,
            compared_as=compared_as,
            **row_formats,
        )
        self._finisher = finisher
        self.on_statement = on_statement
        self.prepared_rows: PreparedRows | None = None
        self._server_uuid, self._block_bytes = server_uuid, block_bytes
        self._buffers = Buffers()

    def decode(
        self, chunks: Iterable[bytes | bytearray | memoryview], slice: Slice
    ) -> Iterator[MessageBlock | SliceReport]:
        """Yield the blocks of ``slice``, and last its SliceReport.

        ``chunks`` are the bytes of raw events without packet headers; a chunk can end inside an event. They begin with
        the FORMAT_DESCRIPTION event of the file or of a dump; artificial ROTATE events before it are skipped. Then come
        exactly the bytes of ``[slice.start, slice.end)``. If the slice begins at 4, the FORMAT_DESCRIPTION is its first
        event.

        Raises BinlogFormatError, with coordinates, for bytes that cannot be decoded and if ``chunks`` end early;
        SchemaError if a table's columns are not known; SettingsError for a column rule that a table cannot have. Blocks
        that were yielded before an error are valid.
        """
        return self.slice_decoder(slice).decode(chunks)

    def slice_decoder(self, slice: Slice) -> SliceDecoder:
        """The decoder of one slice, for callers that need its last position. Only one can be in use at a time."""
        self.programs.forget()
        return SliceDecoder(
            slice,
            self.programs,
            self._buffers,
            self._server_uuid,
            block_bytes=self._block_bytes,
            on_statement=self.on_statement,
            prepared=self.prepared_rows,
            finisher=self._finisher,
        )
