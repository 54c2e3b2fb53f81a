"""The row changes and statements of a binlog or relay-log file as lines: what `changefeed decode FILE...` prints."""

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
    """One file's row changes and statements as lines of a `LineFormat`, in binlog order.

    ``wanted`` says for a database and a table whether its rows are shown; statements always are. ``start`` and ``end``
    are positions of events; without them the whole file is read. After the last line `report` has the slice's report.
    """

    def __init__(
        self,
        path: Path | None,
        format: RowFormat,
        *,
        stream: BinaryIO | None = None,
        wanted: Callable[[str, str], bool] = lambda _database, _table: True,
        schema_lookup: SchemaLookup = lambda _database, _table: None,
        start: int | None = None,
        end: int | None = None,
        server_uuid: str = "",
    ) -> None:
        """``path`` None reads ``stream`` (standard input) to its end first, into a temporary file."""
        self.name = path.name if path is not None else "-"
        self.report: SliceReport | None = None
        self._path, self._stream = path, stream
        self._format = LineFormat(format)
        self._wanted, self._schema_lookup = wanted, schema_lookup
        self._start, self._end = start or FIRST_POSITION, end
        self._server_uuid = server_uuid

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, without line ends.

        A file that ends inside an event or a transaction, or is damaged, yields the lines of all whole transactions
        before that, and then raises BinlogFormatError with the position. Raises SettingsError for positions outside of
        the file.
        """
        with tempfile.TemporaryFile() as spool:
            if self._path is not None:
                with self._path.open("rb") as file:
                    yield from self._of(file)
            else:
                if self._stream is None:
                    raise SettingsError("neither a file nor a stream to decode was given")
                shutil.copyfileobj(self._stream, spool, _CHUNK)
                spool.seek(0)
                yield from self._of(spool)

    def _of(self, file: BinaryIO) -> Iterator[bytes]:
        size = file.seek(0, 2)
        file.seek(0)
        check_magic(file, self.name)
        end = min(self._end or size, size)
        if not FIRST_POSITION <= self._start <= end:
            raise SettingsError(f"{self.name}: --from {self._start} is outside of the file, which ends at {end}")
        if end == FIRST_POSITION:
            raise BinlogFormatError(f"{self.name}:{end}: the file ends before its first event")
        yield from self._decoded(file, end)

    def _decoded(self, file: BinaryIO, end: int) -> Iterator[bytes]:
        broken: BinlogFormatError | None = None
        # A first pass that renders nothing finds where the last whole transaction ends.
        probe = self._decoder(None, None).slice(Slice(0, self.name, self._start, end))
        try:
            for _ in probe.decode(self._chunks(file, end)):
                pass
        except BinlogFormatError as error:
            broken = error
        whole = probe.committed
        if broken is None and whole < end:
            broken = BinlogFormatError(
                f"binlog {self.name}:{end}: the file ends inside the transaction from {whole} on"
            )
        if whole > self._start:
            statements: list[Statement] = []
            decoder = self._decoder(statements.append, Route("lines", 1))
            for item in decoder.decode(self._chunks(file, whole), Slice(0, self.name, self._start, whole)):
                if isinstance(item, MessageBlock):
                    yield from self._merged(item, statements)
                else:
                    self.report = item
            yield from (self._format.statement(statement) for statement in statements)
        if broken is not None:
            raise broken

    def _decoder(self, on_statement: Callable[[Statement], None] | None, route: Route | None) -> KernelDecoder:
        return KernelDecoder(
            lambda database, table: route if self._wanted(database, table) else None,
            self._schema_lookup,
            self._format,
            self._server_uuid,
            on_statement=on_statement,
        )

    def _chunks(self, file: BinaryIO, end: int) -> Iterator[bytes]:
        file.seek(FIRST_POSITION)
        return dumped_chunks(file, self.name, self._start, end)

    def _merged(self, block: MessageBlock, statements: list[Statement]) -> Iterator[bytes]:
        for message in block.messages():
            while statements and statements[0].position < message.position:
                yield self._format.statement(statements.pop(0))
            if message.value is not None:
                yield self._format.line(message.value)
