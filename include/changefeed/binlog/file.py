"""Decodes a binlog or relay-log file to lines with its row changes and statements, for `changefeed decode FILE...`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.file_frame import check_magic, dumped_chunks
from changefeed.binlog.lines import LineFormat
from changefeed.errors import BinlogFormatError, SettingsError
from changefeed.formats.format import RowFormat
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route, SchemaLookup
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock

_CHUNK = 1 << 20


class BinlogFileLines:
    """The row changes and statements of a file as lines of a `LineFormat`, in binlog order.

    ``is_shown`` returns for a database and a table whether its rows are shown; statements are always shown. ``start``
    and ``end`` are positions of events; without them the complete file is read. After the last line `report` is the
    slice's report.
    """

    def __init__(
        self,
        path: Path | None,
        format: RowFormat,
        *,
        stream: BinaryIO | None = None,
        is_shown: Callable[[str, str], bool] = lambda _database, _table: True,
        schema_lookup: SchemaLookup = lambda _database, _table: None,
        start: int | None = None,
        end: int | None = None,
        server_uuid: str = "",
    ) -> None:
        """If ``path`` is None, ``stream`` (standard input) is first read to its end, into a temporary file."""
        self.name = path.name if path is not None else "-"
        self.report: SliceReport | None = None
        self._path, self._stream = path, stream
        self._format = LineFormat(format)
        self._is_shown, self._schema_lookup = is_shown, schema_lookup
        self._start, self._end = start or FIRST_POSITION, end
        self._server_uuid = server_uuid

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, without line ends.

        If the file is damaged, or ends inside an event or a transaction, the lines of all complete transactions before
        that position come first, then BinlogFormatError is raised with the position. Raises SettingsError for positions
        outside of the file.
        """
        with tempfile.TemporaryFile() as spool:
            if self._path is not None:
                with self._path.open("rb") as file:
                    yield from self._lines_of(file)
            else:
                if self._stream is None:
                    raise SettingsError("expected a file or a stream to decode, found neither")
                shutil.copyfileobj(self._stream, spool, _CHUNK)
                spool.seek(0)
                yield from self._lines_of(spool)

    def _lines_of(self, file: BinaryIO) -> Iterator[bytes]:
        size = file.seek(0, 2)
        file.seek(0)
        check_magic(file, self.name)
        end = min(self._end or size, size)
        if not FIRST_POSITION <= self._start <= end:
            raise SettingsError(f"{self.name}: --from {self._start} is outside of the file, which ends at {end}")
        if end == FIRST_POSITION:
            raise BinlogFormatError(f"{self.name}:{end}: the file ends before its first event")
        yield from self._decode(file, end)

    def _decode(self, file: BinaryIO, end: int) -> Iterator[bytes]:
        broken: BinlogFormatError | None = None
        # A first pass, which writes no messages, finds the end of the last complete transaction.
        probe = self._decoder(None, None).slice_decoder(Slice(0, self.name, self._start, end))
        try:
            for _ in probe.decode(self._chunks(file, end)):
                pass
        except BinlogFormatError as error:
            broken = error
        complete_end = probe.last_commit
        if broken is None and complete_end < end:
            broken = BinlogFormatError(
                f"binlog {self.name}:{end}: the file ends inside the transaction from {complete_end} on"
            )
        if complete_end > self._start:
            statements: list[Statement] = []
            decoder = self._decoder(statements.append, Route("lines", 1))
            for item in decoder.decode(
                self._chunks(file, complete_end), Slice(0, self.name, self._start, complete_end)
            ):
                if isinstance(item, MessageBlock):
                    yield from self._merge(item, statements)
                else:
                    self.report = item
            yield from (self._format.statement(statement) for statement in statements)
        if broken is not None:
            raise broken

    def _decoder(self, on_statement: Callable[[Statement], None] | None, route: Route | None) -> KernelDecoder:
        return KernelDecoder(
            lambda database, table: route if self._is_shown(database, table) else None,
            self._schema_lookup,
            self._format,
            self._server_uuid,
            on_statement=on_statement,
        )

    def _chunks(self, file: BinaryIO, end: int) -> Iterator[bytes]:
        file.seek(FIRST_POSITION)
        return dumped_chunks(file, self.name, self._start, end)

    def _merge(self, block: MessageBlock, statements: list[Statement]) -> Iterator[bytes]:
        for message in block.messages():
            while statements and statements[0].position < message.position:
                yield self._format.statement(statements.pop(0))
            if message.value is not None:
                yield self._format.line(message.value)
