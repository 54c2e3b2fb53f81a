"""Makes messages of the rows of a SELECT, by the row programs of a binlog's rows, so that all formats and masks
apply."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from changefeed.binlog.decoder import BLOCK_BYTES
from changefeed.binlog.events.framing import HEADER, EventType
from changefeed.binlog.events.gtids import Gtid
from changefeed.binlog.events.input import Input
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.groups import Buffers
from changefeed.binlog.kernel import layout, result_rows
from changefeed.binlog.kernel.faults import TEXTS
from changefeed.binlog.kernel_run import KernelRun
from changefeed.binlog.programs.programs import Programs
from changefeed.binlog.programs.result_columns import ResultColumn, image_columns
from changefeed.binlog.unfinished import RowTransformer
from changefeed.errors import SourceError
from changefeed.formats.format import RowFormat
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.origin import Chunk
from changefeed.model.route import Router
from changefeed.model.slice_report import SliceReport
from changefeed.model.table_schema import TableSchema
from changefeed.native.memory import Words
from changefeed.records.block import MessageBlock

_EVENT_BYTES = 1 << 20
_TABLE_ID = 1


class Rows(Protocol):
    """The result of a prepared SELECT of `result_columns.select_list`.

    The session must return text unconverted (character_set_results is NULL)."""

    @property
    def columns(self) -> Sequence[ResultColumn]:
        """The result's columns."""
        ...

    def read_into(self, room: memoryview) -> int:
        """Read bytes of row packets of the binary protocol into ``room``; returns their number, at least one.

        The bytes can end inside a packet. The method is not called after the packet that ends the rows. Raises
        SourceUnavailableError for a lost connection.
        """
        ...


@dataclass(frozen=True)
class AsOf:
    """The source that the messages of the rows name: the end of the binlog at the SELECT, the time and the server.

    ``gtid`` is that of a transaction, or '' for none.
    """

    coordinates: BinlogCoordinates
    ts_seconds: int
    server_id: int
    gtid: str = ""


class RowReader:
    """Makes messages of op r of the rows of a SELECT.

    All chunks use the same row programs. Not thread-safe. ``snapshot`` is the text of `Slot.SNAPSHOT`; ``columns`` are
    omitted from the messages or masked in them. ``finisher`` makes messages of unfinished rows, as in `KernelDecoder`.
    """

    def __init__(
        self,
        router: Router,
        format: RowFormat,
        server_uuid: str,
        *,
        columns: ColumnRules = ALL_SHOWN,
        snapshot: str = "true",
        block_bytes: int = BLOCK_BYTES,
        finisher: RowTransformer | None = None,
    ) -> None:
        self._schema: TableSchema | None = None
        row_formats = () if finisher is None else (finisher.row_format,)
        self.programs = Programs(
            router, lambda _database, _table: self._schema, format, columns, snapshot, *row_formats
        )
        self._server_uuid, self._block_bytes, self._finisher = server_uuid, block_bytes, finisher
        self._buffers = Buffers()
        self._packets, self._event = Input(), Input(_EVENT_BYTES)

    def read(
        self, schema: TableSchema, rows: Rows, chunk: Chunk, as_of: AsOf, *, beside: Sequence[RowReader] = ()
    ) -> Iterator[MessageBlock | SliceReport]:
        """Yield the blocks of ``chunk``, in the order of ``rows``, and last its report.

        ``rows`` is the result of a SELECT of `select_list(schema)`. ``beside`` are readers that make other messages of
        the same rows: their blocks come between the blocks of this reader, and their reports before its report.

        Raises SchemaError if the rows have other columns, BinlogFormatError for rows that cannot be read,
        SourceError if the server ends them with an error, SettingsError for a column rule that the table cannot
        have.
        """
        table_map, columns = image_columns(schema, rows.columns)
        runs = [reader._begin(schema, columns, table_map, chunk, as_of) for reader in (*beside, self)]
        yield from self._run(runs, rows, np.array(columns, np.int64), _event_head(len(schema.columns), as_of))
        for run in runs:
            yield from run.finish()

    def _begin(
        self, schema: TableSchema, columns: Sequence[int], table_map: TableMap, chunk: Chunk, as_of: AsOf
    ) -> _ChunkRun:
        self._schema = schema
        table = self.programs.of(table_map, repr((schema, columns)).encode(), is_mariadb=False)
        run = _ChunkRun(
            self.programs,
            self._buffers,
            self._server_uuid,
            origin=str(chunk),
            number=chunk.number,
            file=as_of.coordinates.file,
            position=as_of.coordinates.position,
            block_bytes=self._block_bytes,
            finisher=self._finisher,
        )
        run.begin(table, as_of.gtid)
        return run

    def _run(self, runs: Sequence[_ChunkRun], rows: Rows, columns: Words, head: bytes) -> Iterator[MessageBlock]:
        """Convert row packets into rows events, and run the kernel over each event; yields the full blocks."""
        packets, event = self._packets, self._event
        state = np.zeros(result_rows.STATE_WORDS, np.int64)
        state[result_rows.OUT] = len(head)
        packets.at = packets.filled = 0
        while True:
            state[result_rows.AT], state[result_rows.FILLED] = packets.at, packets.filled
            code = result_rows.convert_rows(packets.data, state, columns, event.data)
            packets.at = int(state[result_rows.AT])
            if code < 0:
                raise runs[-1].error(f"row {state[result_rows.ROWS]}: {TEXTS[code]}")
            if code == result_rows.REFUSED:
                raise _refusal(runs[-1].origin, packets)
            if code == result_rows.MORE:
                room = packets.room()
                packets.filled += rows.read_into(room)
                continue
            size = int(state[result_rows.OUT])
            if size > len(head):
                event.data[: len(head)] = np.frombuffer(head, np.uint8)
                event.data[_SIZE_AT : _SIZE_AT + 4] = np.frombuffer(struct.pack("<I", size), np.uint8)
                for run in runs:
                    event.at, event.filled = 0, size
                    yield from run.run(event)
                state[result_rows.OUT] = len(head)
            elif code == result_rows.ROOM:
                event.data = np.empty(2 * len(event.data), np.uint8)
            if code == result_rows.END:
                return


class _ChunkRun(KernelRun):
    """A run of the kernel over the rows of a chunk, as WRITE_ROWS events that share one position."""

    @property
    def name(self) -> str:
        return "chunk"

    def begin(self, table: int, gtid: str) -> None:
        """Set the program of the rows, and their GTID."""
        state = self.state
        state[layout.INNER] = 1  # rows are numbered through all of the events
        state[layout.LEFT] = 1 << 62
        self._accounts.make_room(len(self._programs.counters))
        self._index.put(_TABLE_ID, table, 0, 0)
        if gtid:
            self._texts.set_gtid(Gtid.parse(gtid))

    def handle(self, source: Input, code: int) -> Iterator[MessageBlock]:  # noqa: ARG002 - no event of ours needs it
        raise AssertionError(f"the kernel returned {code} for rows events that changefeed made itself")


_SIZE_AT = 9
"""The offset of the size in an event's header."""


def _event_head(columns: int, as_of: AsOf) -> bytes:
    """A WRITE_ROWS event up to its first image; the caller sets its size."""
    packed = bytes([columns]) if columns < 251 else b"\xfc" + columns.to_bytes(2, "little")
    return (
        HEADER.pack(as_of.ts_seconds, EventType.WRITE_ROWS, as_of.server_id, 0, 0, 0)
        + _TABLE_ID.to_bytes(6, "little")
        + b"\0\0"  # flags: not the last rows event of its statement
        + b"\2\0"  # no extra data
        + packed
        + b"\xff" * ((columns + 7) // 8)
    )


def _refusal(chunk: str, packets: Input) -> SourceError:
    size = int.from_bytes(packets.data[packets.at : packets.at + 3].tobytes(), "little")
    body = packets.data[packets.at + 4 : packets.at + 4 + size].tobytes()
    words = body[9:] if body[3:4] == b"#" else body[3:]
    return SourceError(
        f"chunk {chunk}: the server ended its rows with error {int.from_bytes(body[1:3], 'little')}: "
        f"{words.decode('utf-8', 'replace')}. Read the chunk again."
    )
