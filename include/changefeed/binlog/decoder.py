"""The decoder of a server's binlog: raw events of its slices in, finished blocks and each slice's accounts out."""

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
    """Decodes slices of one server's binlog; programs made for one slice serve the next.

    Not for use by two threads at once. ``router`` and ``schema_lookup`` are asked once for each table map that is new;
    for table maps without names (binlog_row_metadata=MINIMAL) again after each statement, and in each slice.
    ``columns`` are left out of the messages or masked in them; with any of them no message has a statement's text.
    ``snapshot``, if it is given, says that the rows of WRITE_ROWS events are rows that were read: their op is r, and
    it is the text of their `Slot.SNAPSHOT`. All others are `false` there.
    ``on_statement`` is called with each statement when the blocks of all earlier rows were yielded and before any later
    row is decoded, so that a caller that follows the schema can move it forward.
    ``transactions`` is where the records of transactions go, where the format has some.
    ``compared_as`` is the format, and what is left out of rows or masked there, in which updates are compared where a
    route leaves out those that change nothing; by default those of the messages.
    ``finisher`` makes messages of the rows of its tables, which the kernel leaves unfinished.
    Rows of an XA transaction come where they stand, as all others, or at its XA COMMIT where ``prepared_rows`` are
    set, anew for each slice.
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
        self, chunks: Iterable[bytes | bytearray | memoryview], piece: Slice
    ) -> Iterator[MessageBlock | SliceReport]:
        """Yield the blocks of ``piece``, and last its SliceReport.

        ``chunks`` are raw events without packet headers, cut anywhere: the FORMAT_DESCRIPTION event first (that of the
        file, or that which a dump sends; artificial ROTATE events before it are passed over), then exactly the bytes of
        ``[piece.start, piece.end)``. Where the slice begins at 4, the FORMAT_DESCRIPTION is its first event.

        Raises BinlogFormatError with coordinates for bytes that cannot be decoded, also when ``chunks`` end early;
        SchemaError when a table's columns are not known; SettingsError for a column rule that a table cannot have.
        Blocks that were yielded before are right as they are.
        """
        return self.slice(piece).decode(chunks)

    def slice(self, piece: Slice) -> SliceDecoder:
        """The decoder of one slice, for a caller that asks where it stopped. Finish it before the next is made."""
        self.programs.forget()
        return SliceDecoder(
            piece,
            self.programs,
            self._buffers,
            self._server_uuid,
            block_bytes=self._block_bytes,
            on_statement=self.on_statement,
            prepared=self.prepared_rows,
            finisher=self._finisher,
        )
