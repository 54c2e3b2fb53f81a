"""Rows of a SELECT as messages: through the same row programs as a binlog's, so all formats and masks hold for them."""

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
from changefeed.binlog.programs.result_columns import ResultColumn, turned_columns
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
    """The result of a prepared SELECT of `result_columns.selected`, over a `source.mysql.session` whose text comes as
    it is stored (character_set_results is NULL)."""

    @property
    def columns(self) -> Sequence[ResultColumn]:
        """The result's columns."""
        ...

    def read_into(self, room: memoryview) -> int:
        """Read row packets of the binary protocol, cut anywhere, into ``room``; returns how many bytes, at least one.

        It is not called after the packet that ends the rows. Raises SourceUnavailableError for a lost connection.
        """
        ...


@dataclass(frozen=True)
class AsOf:
    """What the messages of rows say of their source: the binlog's end when they were read, and when and where that was.

    ``gtid`` is that of a transaction, or '' for none.
    """

    coordinates: BinlogCoordinates
    ts_seconds: int
    server_id: int
    gtid: str = ""


class RowReader:
    """Makes messages of op r out of rows that were read.

    Row programs made for one chunk serve the next. Not for use by two threads at once. ``snapshot`` is what
    `Slot.SNAPSHOT` says of the rows; ``columns`` are left out of the messages or masked in them. ``finisher`` makes
    messages of the rows of its tables, as it does of a binlog's.
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

        ``rows`` are those of a SELECT of `selected(schema)`. ``beside`` are readers that make other messages of the
        same rows: their blocks come between this one's, and their reports before its.

        Raises SchemaError where the rows have other columns, BinlogFormatError for rows that cannot be read,
        SourceError where the server ends them with an error, SettingsError for a column rule that the table cannot
        have.
        """
        table_map, columns = turned_columns(schema, rows.columns)
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
        """Turn row packets into rows events, and have the kernel make messages of each."""
        packets, event = self._packets, self._event
        state = np.zeros(result_rows.STATE_WORDS, np.int64)
        state[result_rows.OUT] = len(head)
        packets.at = packets.filled = 0
        while True:
            state[result_rows.AT], state[result_rows.FILLED] = packets.at, packets.filled
            code = result_rows.turn(packets.data, state, columns, event.data)
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
    """The rows of a chunk on their way through the kernel, as WRITE_ROWS events that share one position."""

    @property
    def name(self) -> str:
        return "chunk"

    def begin(self, table: int, gtid: str) -> None:
        """Say which program the rows are for, and what GTID they have."""
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
"""Where an event's size stands in it."""


def _event_head(columns: int, as_of: AsOf) -> bytes:
    """A WRITE_ROWS event up to its first image; its size is to be filled in."""
    packed = bytes([columns]) if columns < 251 else b"\xfc" + columns.to_bytes(2, "little")
    return (
        HEADER.pack(as_of.ts_seconds, EventType.WRITE_ROWS, as_of.server_id, 0, 0, 0)
        + _TABLE_ID.to_bytes(6, "little")
        + b"\0\0"  # not the last rows event of its statement
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
