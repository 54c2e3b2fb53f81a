"""Reads the server's side: entries of the rows of chunks, encoded as the pipeline would publish them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from changefeed.binlog.programs.result_columns import select_list
from changefeed.binlog.row_reader import AsOf, RowReader
from changefeed.errors import SchemaError, SourceError
from changefeed.formats.by_table import each_format
from changefeed.formats.format import Format, RowFormat
from changefeed.formats.notation import Notation
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quote_name
from changefeed.model.origin import Chunk
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Message, MessageBlock
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.preflight import unreadable
from changefeed.source.mysql.result_set import ResultSet
from changefeed.verify.entries import Entries, Entry, Side
from changefeed.verify.job import TableChunk, VerifyJob, record_reader_of
from changefeed.verify.positions import FollowerPositions, Positions, SourcePositions
from changefeed.verify.row_checksums import CHECKSUM_BYTES
from changefeed.verify.row_digests import Row, row_digest, row_digests, values_key
from changefeed.verify.strings import Strings

_log = logging.getLogger(__name__)

VISIBILITY_SECONDS = 2.0
"""The time before a chunk is read at which its read interval begins.

A transaction is in the binlog before SELECTs see it, because its commit waits for the disk and for replicas. So the
interval begins at the position that the binlog had this many seconds earlier.
"""


@dataclass(frozen=True)
class ChunkReport:
    """The report of a chunk that was read between ``low`` and ``high``.

    ``problem`` says why it was not read completely; '' if it was.
    """

    number: int
    table: int
    rows: int
    low: BinlogCoordinates
    high: BinlogCoordinates
    problem: str = ""


class ServerRows:
    """Reads chunks over two connections, one for rows and one for positions. As a context manager, it closes them."""

    def __init__(self, job: VerifyJob) -> None:
        self._job = job
        self._positions: Positions = SourcePositions()
        if job.follower:
            self._positions = FollowerPositions(job.connections.pipeline.name)
        self._format = job.format()
        columns = job.connections.column_rules
        self._reader = RowReader(job.route, self._format, job.server_uuid, columns=columns)
        self._text_reader = RowReader(job.route, row_text_format(self._format), job.server_uuid, columns=columns)
        self._rows, self._position_session = job.session(), job.session()
        self._returned = 0
        self._rows.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # all rows of one snapshot
        self._known_positions = deque([(time.monotonic() - VISIBILITY_SECONDS, BinlogCoordinates.parse(job.start))])

    def __enter__(self) -> ServerRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.raw.close()
        self._position_session.raw.close()

    def read(self, chunk: TableChunk) -> Iterator[Entries | ChunkReport]:
        """Yield the entries of the chunk's rows, then its report."""
        low, count = self._low(), 0
        by_text = self._job.table(chunk.table).is_text and not self._job.is_exact
        problem = ""
        try:
            self._rows.rows("START TRANSACTION")  # one read view for counting and reading
            counted, self._returned = self._count(chunk), 0
            for entries, rows in self._entries_by_text(chunk) if by_text else self._entries_by_value(chunk):
                yield replace(entries, places=entries.places + count)
                count += rows
            if self._returned != counted == self._count(chunk):
                problem = (
                    f"expected {counted} rows in part {chunk.number}, which its server counts, found {self._returned}"
                )
            self._rows.rows("COMMIT")
        except (SourceError, SchemaError) as error:
            problem = self._find_problem(chunk)
            if not problem:
                raise
            _log.info("chunk %d: %s (%s)", chunk.number, problem, error)
        yield ChunkReport(chunk.number, chunk.table, count, low, self._now(), problem)

    def _find_problem(self, chunk: TableChunk) -> str:
        """Why the chunk could not be read: its rights or its table changed since the plan; '' if neither changed."""
        planned = self._job.table(chunk.table).schema
        name = planned.database, planned.table
        if denied := unreadable(self._position_session, [name]):
            return f"not all of its rows could be read: {denied[name]}"
        schema = table_schema(self._position_session, *name)
        if schema == planned:
            return ""
        what = "dropped or renamed" if schema is None else "altered"
        return f"it was {what} while it was compared, so not all of its rows could be read. Verify again"

    def rows(self, chunk: TableChunk) -> Iterator[tuple[bytes, bytes, Row]]:
        """Yield the key, digest and values of each row of the chunk."""
        for rows in self._rows_by_value(chunk):
            yield from rows

    def _entries_by_value(self, chunk: TableChunk) -> Iterator[tuple[Entries, int]]:
        """Yield the entries of the rows that are compared, and the number of all rows."""
        for rows in self._rows_by_value(chunk):
            yield (
                Entries.of(
                    [
                        Entry(chunk.table, key, Side.SERVER, chunk.number, place, 0, 1, digest)
                        for place, (key, digest, _) in enumerate(rows)
                        if self._job.includes(chunk.table, key)
                    ]
                ),
                len(rows),
            )

    def _rows_by_value(self, chunk: TableChunk) -> Iterator[list[tuple[bytes, bytes, Row]]]:
        table = self._job.table(chunk.table)
        changes = record_reader_of(self._format, table)

        def row(message: Message) -> tuple[bytes, bytes, Row]:
            after = changes.of(message.value or b"")[0].after or {}
            digest = row_digest(table.compared_columns(after))
            return values_key(digest) if table.without_key else changes.key(message.key or b""), digest, after

        for block in self._blocks(self._reader, chunk):
            yield [row(message) for message in block.messages()]

    def _entries_by_text(self, chunk: TableChunk) -> Iterator[tuple[Entries, int]]:
        """Yield the entries of all rows, compared by their text, and the number of rows."""
        without_key = self._job.table(chunk.table).without_key
        for block in self._blocks(self._text_reader, chunk):
            arrays = block.arrays()
            data, ends = np.frombuffer(arrays.data, np.uint8), np.frombuffer(arrays.ends, np.uint32).astype(np.int64)
            key_end, value_end, *_, last = ends.reshape(-1, 4).T
            begin = np.concatenate([np.zeros(1, np.int64), last[:-1]])
            rows = row_digests(data, key_end, value_end)
            keys = rows.first_bytes(CHECKSUM_BYTES) if without_key else Strings.parts(data, begin, key_end)
            places = np.arange(len(keys))
            entries = Entries.of_columns(chunk.table, keys, Side.SERVER, chunk.number, places, 0, 1, rows)
            yield entries, len(entries)

    def _count(self, chunk: TableChunk) -> int:
        """The number of rows of the chunk, which the server counts, to detect rows that are missing in its result."""
        schema = self._job.table(chunk.table).schema
        sql = f"SELECT COUNT(*) FROM {quote_name(schema.database)}.{quote_name(schema.table)} {chunk.where}"
        return int(self._rows.row(sql)[0])

    def _blocks(self, reader: RowReader, chunk: TableChunk) -> Iterator[MessageBlock]:
        schema, as_of = self._job.table(chunk.table).schema, AsOf(self._now(), 1, 0)
        sql = (
            f"SELECT {select_list(schema)} FROM {quote_name(schema.database)}.{quote_name(schema.table)} {chunk.where}"
        )
        with ResultSet(self._rows, sql) as rows:
            for item in reader.read(schema, rows, Chunk(schema.database, schema.table, chunk.number), as_of):
                if isinstance(item, MessageBlock):
                    yield item
                else:
                    self._returned += sum(sum(ops.values()) for of in (item.rows, item.filtered) for ops in of.values())

    def _now(self) -> BinlogCoordinates:
        coordinates = self._positions.now(self._position_session)
        self._known_positions.append((time.monotonic(), coordinates))
        return coordinates

    def _low(self) -> BinlogCoordinates:
        """The last position that was read at least VISIBILITY_SECONDS ago."""
        until = time.monotonic() - VISIBILITY_SECONDS
        while len(self._known_positions) > 1 and self._known_positions[1][0] <= until:
            self._known_positions.popleft()
        return self._known_positions[0][1]


@dataclass(frozen=True)
class RowText:
    """A format that writes only the key and the row, encoded as ``format`` does."""

    format: RowFormat

    @property
    def style(self) -> Style:
        """The style of ``format``."""
        return self.format.style

    @property
    def notation(self) -> Notation:
        """The notation of ``format``."""
        return self.format.notation

    @property
    def needs_definitions(self) -> bool:
        """See `RowFormat`."""
        return self.format.needs_definitions

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the protocol's signature
        """One message for each change."""
        return ONE_MESSAGE_EACH

    def key(self, table: TableSchema) -> Template | None:
        """The key of ``format``."""
        return self.format.key(table)

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002 - the protocol's signature
        """The row after the change."""
        return (Slot.AFTER,)


def row_text_format(format: Format) -> RowFormat:
    """A format whose values are only the rows of ``format``, to compare rows by their text."""
    return each_format(format, RowText)
