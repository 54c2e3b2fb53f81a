"""The server's side: rows of chunks, each as the record that the pipeline would write of it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from changefeed.binlog.kernel.row_checksums import CHECKSUM_BYTES
from changefeed.binlog.programs.result_columns import quoted, selected
from changefeed.binlog.row_reader import AsOf, RowReader
from changefeed.block import Block, Message
from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import SchemaError, SourceError
from changefeed.mysql.catalog import table_schema
from changefeed.mysql.readable import unreadable
from changefeed.mysql.result_set import ResultSet
from changefeed.mysql.session import Session
from changefeed.mysql.source import head
from changefeed.origin import Chunk
from changefeed.verify.entries import Entries
from changefeed.verify.entry import Entry, Side
from changefeed.verify.follower import FollowerPositions
from changefeed.verify.job import TableChunk, VerifyJob, written_by
from changefeed.verify.row_digests import Row, row_digest, row_digests, values_key
from changefeed.verify.row_text import row_texts
from changefeed.verify.strings import Strings

_log = logging.getLogger(__name__)

SETTLING_SECONDS = 2.0
"""A transaction stands in the binlog a moment before SELECTs see it: its commit waits for the disk and for replicas. So
the rows of a chunk count as read from the position on that the binlog had so long before."""


class Positions(Protocol):
    """Where along the source's binlog a server stands."""

    def now(self, session: Session) -> BinlogCoordinates:
        """All changes before it are seen by a SELECT that begins now, at the latest SETTLING_SECONDS later."""
        ...


class SourcePositions:
    """The source's own: the head of its binlog."""

    def now(self, session: Session) -> BinlogCoordinates:
        """The head."""
        return head(session).coordinates


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
            self._positions = FollowerPositions(job.endpoints.pipeline.name)
        self._format = job.format()
        columns = job.endpoints.column_rules
        self._reader = RowReader(job.route, self._format, job.server_uuid, columns=columns)
        self._text_reader = RowReader(job.route, row_texts(self._format), job.server_uuid, columns=columns)
        self._rows, self._asked = job.session(), job.session()
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
            for entries, rows in self._texts(chunk) if by_text else self._wanted(chunk):
                yield replace(entries, places=entries.places + count)
                count += rows
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
            after = changes.of(message.value or b"").after or {}
            digest = row_digest(after)
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

    def _blocks(self, reader: RowReader, chunk: TableChunk) -> Iterator[Block]:
        schema, as_of = self._job.table(chunk.table).schema, AsOf(self._now(), 1, 0)
        sql = f"SELECT {selected(schema)} FROM {quoted(schema.database)}.{quoted(schema.table)} {chunk.where}"
        with ResultSet(self._rows, sql) as rows:
            for item in reader.read(schema, rows, Chunk(schema.database, schema.table, chunk.number), as_of):
                if isinstance(item, Block):
                    yield item

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
