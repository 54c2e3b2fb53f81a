"""The server's side: rows of chunks, each as the record that the pipeline would write of it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from changefeed.binlog.programs.result_columns import selected
from changefeed.binlog.row_reader import AsOf, RowReader
from changefeed.errors import SchemaError, SourceError
from changefeed.formats.by_table import each_format
from changefeed.formats.format import Format, RowFormat
from changefeed.formats.notation import Notation
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quoted
from changefeed.model.origin import Chunk
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Message, MessageBlock
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.preflight import unreadable
from changefeed.source.mysql.result_set import ResultSet
from changefeed.verify.entries import Entries, Entry, Side
from changefeed.verify.job import TableChunk, VerifyJob, written_by
from changefeed.verify.positions import FollowerPositions, Positions, SourcePositions
from changefeed.verify.row_checksums import CHECKSUM_BYTES
from changefeed.verify.row_digests import Row, row_digest, row_digests, values_key
from changefeed.verify.strings import Strings

_log = logging.getLogger(__name__)

SETTLING_SECONDS = 2.0
"""A transaction stands in the binlog a moment before SELECTs see it: its commit waits for the disk and for replicas. So
the rows of a chunk count as read from the position on that the binlog had so long before."""


@dataclass(frozen=True)
class ChunkReport:
    """A chunk that was read, between ``low`` and ``high``; or the ``problem`` for which it could not be."""

    number: int
    table: int
    rows: int
    low: BinlogCoordinates
    high: BinlogCoordinates
    problem: str = ""


class ServerRows:
    """Reads chunks over two connections, one for rows and one for positions; a context manager."""

    def __init__(self, job: VerifyJob) -> None:
        self._job = job
        self._positions: Positions = SourcePositions()
        if job.follower:
            self._positions = FollowerPositions(job.connections.pipeline.name)
        self._format = job.format()
        columns = job.connections.column_rules
        self._reader = RowReader(job.route, self._format, job.server_uuid, columns=columns)
        self._text_reader = RowReader(job.route, row_texts(self._format), job.server_uuid, columns=columns)
        self._rows, self._asked = job.session(), job.session()
        self._returned = 0
        self._rows.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # rows of one moment
        self._known = deque([(time.monotonic() - SETTLING_SECONDS, BinlogCoordinates.parse(job.begun))])

    def __enter__(self) -> ServerRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.raw.close()
        self._asked.raw.close()

    def read(self, chunk: TableChunk) -> Iterator[Entries | ChunkReport]:
        """The chunk's rows, then its report."""
        low, count = self._low(), 0
        by_text = self._job.table(chunk.table).is_text and not self._job.is_exact
        problem = ""
        try:
            self._rows.rows("START TRANSACTION")  # one view for counting and reading
            counted, self._returned = self._count(chunk), 0
            for entries, rows in self._texts(chunk) if by_text else self._wanted(chunk):
                yield replace(entries, places=entries.places + count)
                count += rows
            if self._returned != counted == self._count(chunk):
                problem = f"its server counts {counted} rows in part {chunk.number}, and returned {self._returned}"
            self._rows.rows("COMMIT")
        except (SourceError, SchemaError) as error:
            problem = self._altered(chunk)
            if not problem:
                raise
            _log.info("chunk %d: %s (%s)", chunk.number, problem, error)
        yield ChunkReport(chunk.number, chunk.table, count, low, self._now(), problem)

    def _altered(self, chunk: TableChunk) -> str:
        """What became of the chunk's table since the comparison was planned; '' where it is as it was."""
        planned = self._job.table(chunk.table).schema
        name = planned.database, planned.table
        if denied := unreadable(self._asked, [name]):
            return f"not all of its rows could be read: {denied[name]}"
        schema = table_schema(self._asked, *name)
        if schema == planned:
            return ""
        what = "dropped or renamed" if schema is None else "altered"
        return f"it was {what} while it was compared, so that not all of its rows could be read: verify again"

    def rows(self, chunk: TableChunk) -> Iterator[tuple[bytes, bytes, Row]]:
        """Key, digest and values of each row, in one SELECT."""
        for rows in self._by_value(chunk):
            yield from rows

    def _wanted(self, chunk: TableChunk) -> Iterator[tuple[Entries, int]]:
        """Entries of the rows that are looked at, and how many rows there are."""
        for rows in self._by_value(chunk):
            yield (
                Entries.of(
                    [
                        Entry(chunk.table, key, Side.SERVER, chunk.number, place, 0, 1, digest)
                        for place, (key, digest, _) in enumerate(rows)
                        if self._job.wants(chunk.table, key)
                    ]
                ),
                len(rows),
            )

    def _by_value(self, chunk: TableChunk) -> Iterator[list[tuple[bytes, bytes, Row]]]:
        table = self._job.table(chunk.table)
        changes = written_by(self._format, table)

        def row(message: Message) -> tuple[bytes, bytes, Row]:
            after = changes.of(message.value or b"")[0].after or {}
            digest = row_digest(table.compared(after))
            return values_key(digest) if table.without_key else changes.key(message.key or b""), digest, after

        for block in self._blocks(self._reader, chunk):
            yield [row(message) for message in block.messages()]

    def _texts(self, chunk: TableChunk) -> Iterator[tuple[Entries, int]]:
        """Entries of all rows by their text, and how many there are."""
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
        """How many rows the chunk has. The server counts them itself: nothing that leaves rows out of a result, or
        loses them on the way, is in its number."""
        schema = self._job.table(chunk.table).schema
        sql = f"SELECT COUNT(*) FROM {quoted(schema.database)}.{quoted(schema.table)} {chunk.where}"
        return int(self._rows.row(sql)[0])

    def _blocks(self, reader: RowReader, chunk: TableChunk) -> Iterator[MessageBlock]:
        schema, as_of = self._job.table(chunk.table).schema, AsOf(self._now(), 1, 0)
        sql = f"SELECT {selected(schema)} FROM {quoted(schema.database)}.{quoted(schema.table)} {chunk.where}"
        with ResultSet(self._rows, sql) as rows:
            for item in reader.read(schema, rows, Chunk(schema.database, schema.table, chunk.number), as_of):
                if isinstance(item, MessageBlock):
                    yield item
                else:
                    self._returned += sum(sum(ops.values()) for of in (item.rows, item.filtered) for ops in of.values())

    def _now(self) -> BinlogCoordinates:
        coordinates = self._positions.now(self._asked)
        self._known.append((time.monotonic(), coordinates))
        return coordinates

    def _low(self) -> BinlogCoordinates:
        """The last position that was known SETTLING_SECONDS ago."""
        until = time.monotonic() - SETTLING_SECONDS
        while len(self._known) > 1 and self._known[1][0] <= until:
            self._known.popleft()
        return self._known[0][1]


@dataclass(frozen=True)
class RowText:
    """Key and row as ``format`` writes them."""

    format: RowFormat

    @property
    def style(self) -> Style:
        """That of ``format``."""
        return self.format.style

    @property
    def notation(self) -> Notation:
        """That of ``format``."""
        return self.format.notation

    @property
    def needs_definitions(self) -> bool:
        """As ``format`` says."""
        return self.format.needs_definitions

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the protocol's signature
        """One each."""
        return ONE_MESSAGE_EACH

    def key(self, table: TableSchema) -> Template | None:
        """That of ``format``."""
        return self.format.key(table)

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002 - the protocol's signature
        """The row."""
        return (Slot.AFTER,)


def row_texts(format: Format) -> RowFormat:
    """Of a pipeline's ``format`` what is compared by its text."""
    return each_format(format, RowText)
