"""Which chunks are read next, and how large they are: as large as a task reads in a second or two."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from changefeed.errors import NoSuchTableError, SchemaError
from changefeed.kafka.commit_log.snapshots import PlannedChunk, SnapshotRecord, TableProgress
from changefeed.model.identifier import quoted
from changefeed.model.key_range import ALL_ROWS, KeyRange
from changefeed.model.table_schema import TableSchema
from changefeed.snapshot.planning import key_text
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_schemas
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_key import TableKey

_log = logging.getLogger(__name__)

FEWEST_ROWS, MOST_ROWS = 100, 2_000_000
FIRST_ROWS, FIRST_BYTES = 100_000, 16 << 20
"""A table's first chunk has no more of them, by the server's guess of what a row takes."""
CHUNK_SECONDS = 1.5
"""As long is a chunk to be read: what is lost by a kill, and held in memory at once, stays small."""
CHUNK_BYTES = 24 << 20
_GROWTH = 4
_SCHEMAS_AT_ONCE = 50
"""Of tables whose definitions are asked for together."""
_SMALL = 32
"""A whole chunk takes as long as so many of tables with a few rows."""


class ChunkCutter:
    """Cuts the tables of a snapshot into chunks, one table after the other; boundaries are asked for over ``session``.

    A chunk has no more than ``most_rows``. Not for use by two threads at once.
    """

    def __init__(self, session: Session, most_rows: int | None = None) -> None:
        self._session, self._most_rows = session, most_rows or MOST_ROWS
        self._rows: dict[str, int] = {}
        self._keys: dict[str, TableKey | None] = {}
        self._schemas: dict[tuple[str, str], TableSchema] = {}

    def round(self, snapshot: SnapshotRecord, chunks: int, most_rows: int | None = None) -> SnapshotRecord:
        """``snapshot`` with a round of up to so many ``chunks``, or of more where tables are smaller than one: those
        that are left come first, each under a new number. Behind ``most_rows`` together no further one is added.

        Tables that are gone are left out, with a warning; one that is there again is read from its beginning. The round
        is empty where nothing is left. Raises SchemaError for a table that has another primary key than the snapshot
        began with.
        """
        self._schemas = {}
        snapshot = self._with_those_there(snapshot)
        number = snapshot.number
        planned = [replace(chunk, number=number + at) for at, chunk in enumerate(snapshot.round)]
        number += len(planned)
        tables = {table.name: table for table in snapshot.tables}
        whole, rows = float(len(planned)), sum(self._rows_of(tables[chunk.table_name]) for chunk in planned)
        behind = self._next(snapshot)
        while whole < chunks and (most_rows is None or rows < most_rows or not planned):
            chunk, moved = next(behind, (None, None))
            if moved is None:
                break
            tables[moved.name] = moved
            if chunk is None:  # the table is gone
                planned = [each for each in planned if each.table_name != moved.name]
                continue
            planned.append(replace(chunk, number=number))
            likely = self._likely_rows(chunk, moved)
            whole += max(1 / _SMALL, likely / self._rows_of(moved))
            rows += likely
            number += 1
        return replace(snapshot, tables=tuple(tables.values()), round=tuple(planned), number=number)

    def forget(self, names: Collection[str]) -> None:
        """Look at the tables of these ``names`` again: they may be others since."""
        for name in names:
            self._keys.pop(name, None)
            self._rows.pop(name, None)

    def _with_those_there(self, snapshot: SnapshotRecord) -> SnapshotRecord:
        """``snapshot`` without the chunks of tables that are gone, and with tables that were gone and are there."""
        left = {chunk.table_name for chunk in snapshot.round}
        tables = [table for table in snapshot.tables if table.gone or table.name in left]
        if not tables:
            return snapshot
        there = table_schemas(self._session, ((table.database, table.table) for table in tables))
        for table in tables:
            is_there = (table.database, table.table) in there
            if bool(table.gone) == is_there:
                self.forget([table.name])
                snapshot = snapshot.anew([table.name]) if is_there else self._without(snapshot, table)
        return snapshot

    def _without(self, snapshot: SnapshotRecord, table: TableProgress) -> SnapshotRecord:
        """``snapshot`` without ``table``, which is not among those that can be seen.

        Raises SourceError where the user may not read it, so that it may be there.
        """
        try:
            # It waits for the statement that drops the table, which is in the binlog when it ends.
            self._session.rows(f"SELECT 1 FROM {quoted(table.database)}.{quoted(table.table)} LIMIT 0")
        except NoSuchTableError:
            _log.warning(
                "table %s is not there any more, and is left out of the snapshot, which has published %d of its rows. "
                "If it has another name now, take a snapshot of that: rows of it that were not read are in no topic",
                table.name,
                table.rows,
            )
            return snapshot.without(table, source.head(self._session).coordinates)
        return snapshot  # it came back in this moment

    def took(self, table: TableProgress, rows: int, size_bytes: int, seconds: float) -> None:
        """A chunk of ``table`` was read: those that come next are made larger or smaller by it."""
        planned = self._rows_of(table)
        if rows < planned // 2:
            return  # the end of the table
        wanted = rows * min(CHUNK_SECONDS / max(seconds, 0.001), CHUNK_BYTES / max(size_bytes, 1))
        self._rows[table.name] = int(max(FEWEST_ROWS, min(wanted, planned * _GROWTH)))

    def _rows_of(self, table: TableProgress) -> int:
        """How many rows the next chunk of ``table`` gets."""
        rows = self._rows.get(table.name)
        if rows is None:
            rows = max(FEWEST_ROWS, min(FIRST_ROWS, FIRST_BYTES // max(table.row_bytes, 1)))
        return min(rows, self._most_rows)

    def _likely_rows(self, chunk: PlannedChunk, table: TableProgress) -> int:
        planned = self._rows_of(table)
        if chunk.within == ALL_ROWS:  # up to the table's end, which came before as many
            return min(planned, table.estimated_rows)
        return planned

    def _next(self, snapshot: SnapshotRecord) -> Iterator[tuple[PlannedChunk | None, TableProgress]]:
        """The chunks behind those that were planned, each with its table as it stands behind that; without a chunk a
        table that is gone."""
        left = [table for table in snapshot.tables if not table.at_end]
        for at, table in enumerate(left):
            try:
                yield from self._chunks(table, left[at : at + _SCHEMAS_AT_ONCE])
            except NoSuchTableError:
                without = self._without(snapshot, table)
                yield from ((None, each) for each in without.tables if each.name == table.name and each.gone)

    def _chunks(
        self, table: TableProgress, likely: Sequence[TableProgress]
    ) -> Iterator[tuple[PlannedChunk, TableProgress]]:
        """The chunks of ``table``, the first of those that are ``likely`` to be cut now.

        Raises NoSuchTableError for one that cannot be seen.
        """
        while not table.at_end:
            key = self._key(table, likely)
            if key is None or not key.is_walked:
                table = replace(table, at_end=True)
                yield PlannedChunk(0, table.database, table.table, has_key=key is not None), table
                continue
            upto = key.next_boundary(self._session, table.at, self._rows_of(table))
            within = KeyRange(table.at, upto)
            table = replace(table, at=upto, at_end=True) if upto is None else replace(table, at=upto)
            yield PlannedChunk(0, table.database, table.table, within), table

    def _key(self, table: TableProgress, likely: Sequence[TableProgress]) -> TableKey | None:
        """The key of ``table``, the first of those that are ``likely`` to be cut now."""
        if table.name not in self._keys:
            name = (table.database, table.table)
            if name not in self._schemas:
                names = ((each.database, each.table) for each in likely if each.name not in self._keys)
                self._schemas = table_schemas(self._session, names)
            schema = self._schemas.get(name)
            if schema is None:
                raise NoSuchTableError(f"table {table.name} is not there any more")
            if key_text(schema) != table.key:
                raise SchemaError(
                    f"the primary key of {table.name} is ({key_text(schema)}) now, and was ({table.key}) when the "
                    "snapshot began: which of its rows are published is not known by the new one. Start a new "
                    "snapshot of it."
                )
            self._keys[table.name] = TableKey.of(schema)
        return self._keys[table.name]
