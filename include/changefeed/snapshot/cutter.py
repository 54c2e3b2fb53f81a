"""Cuts tables into the chunks to read next. A task reads a chunk in a second or two."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from changefeed.errors import NoSuchTableError, SchemaError
from changefeed.kafka.commit_log.snapshots import PlannedChunk, SnapshotRecord, TableProgress
from changefeed.model.identifier import quote_name
from changefeed.model.key_range import ALL_ROWS, KeyRange
from changefeed.model.table_schema import TableSchema
from changefeed.snapshot.planning import key_text
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import is_view, table_schemas
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_key import TableKey

_log = logging.getLogger(__name__)

FEWEST_ROWS, MOST_ROWS = 100, 2_000_000
FIRST_ROWS, FIRST_BYTES = 100_000, 16 << 20
"""Limits of a table's first chunk. Its bytes are estimated from the server's average row length."""
CHUNK_SECONDS = 1.5
"""Target time to read a chunk. It limits the work that a kill loses, and the memory for a chunk."""
CHUNK_BYTES = 24 << 20
_GROWTH = 4
_SCHEMAS_AT_ONCE = 50
"""The number of tables whose schemas one query reads."""
_SMALL = 32
"""The number of chunks with a few rows that take as long as a full chunk."""


class ChunkCutter:
    """Cuts the tables of a snapshot into chunks, one table after the other. Reads the boundaries over ``session``.

    A chunk has at most ``most_rows``. Not thread-safe.
    """

    def __init__(self, session: Session, most_rows: int | None = None) -> None:
        self._session, self._most_rows = session, most_rows or MOST_ROWS
        self._rows: dict[str, int] = {}
        self._keys: dict[str, TableKey | None] = {}
        self._schemas: dict[tuple[str, str], TableSchema] = {}

    def round(self, snapshot: SnapshotRecord, chunks: int, most_rows: int | None = None) -> SnapshotRecord:
        """``snapshot`` with its next round of up to ``chunks`` chunks, or more if tables are smaller than a chunk.

        - Unpublished chunks of the previous round come first, with new numbers.
        - After ``most_rows`` rows in total, no chunk is added.
        - Dropped tables are left out, with a warning. A table that was created again is read from its beginning.
        - The round is empty if nothing is left.

        Raises SchemaError if a table's primary key changed since the snapshot began.
        """
        self._keys, self._schemas = {}, {}  # a table that was read in part may have a new key, or may be a view now
        snapshot = self._with_existing_tables(snapshot)
        number = snapshot.number
        planned = [replace(chunk, number=number + at) for at, chunk in enumerate(snapshot.round)]
        number += len(planned)
        tables = {table.name: table for table in snapshot.tables}
        units, rows = float(len(planned)), sum(self._rows_of(tables[chunk.table_name]) for chunk in planned)
        following = self._next(snapshot)
        while units < chunks and (most_rows is None or rows < most_rows or not planned):
            chunk, moved = next(following, (None, None))
            if moved is None:
                break
            tables[moved.name] = moved
            if chunk is None:  # the table was dropped
                planned = [each for each in planned if each.table_name != moved.name]
                continue
            planned.append(replace(chunk, number=number))
            likely = self._likely_rows(chunk, moved)
            units += max(1 / _SMALL, likely / self._rows_of(moved))
            rows += likely
            number += 1
        return replace(snapshot, tables=tuple(tables.values()), round=tuple(planned), number=number)

    def forget(self, names: Collection[str]) -> None:
        """Forget the keys and chunk sizes of the tables ``names``, because the tables may have changed."""
        for name in names:
            self._keys.pop(name, None)
            self._rows.pop(name, None)

    def _with_existing_tables(self, snapshot: SnapshotRecord) -> SnapshotRecord:
        """``snapshot`` without the chunks of dropped tables. Dropped tables that exist again begin anew."""
        left = {chunk.table_name for chunk in snapshot.round}
        tables = [table for table in snapshot.tables if table.gone or table.name in left]
        if not tables:
            return snapshot
        there = table_schemas(self._session, ((table.database, table.table) for table in tables))
        for table in tables:
            is_there = (table.database, table.table) in there
            if bool(table.gone) == is_there:
                self.forget([table.name])
                snapshot = snapshot.anew([table.name]) if is_there else self._without_table(snapshot, table)
        return snapshot

    def _without_table(self, snapshot: SnapshotRecord, table: TableProgress) -> SnapshotRecord:
        """``snapshot`` without ``table``, if it was dropped; information_schema does not list it.

        Raises SourceError if the user may not read the table: it may exist.
        """
        if self._exists(table):
            return snapshot  # it was created again meanwhile
        _log.warning(
            "table %s does not exist any more, and is left out of the snapshot, which has published %d of its rows. "
            "If it was renamed, take a snapshot under its new name: its rows that were not read are in no topic",
            table.name,
            table.rows,
        )
        return snapshot.without(table, source.head(self._session).coordinates)

    def _exists(self, table: TableProgress) -> bool:
        if is_view(self._session, table.database, table.table):
            return False
        try:
            # This waits for a DROP TABLE in progress. Afterwards the DROP TABLE is in the binlog.
            self._session.rows(f"SELECT 1 FROM {quote_name(table.database)}.{quote_name(table.table)} LIMIT 0")
        except NoSuchTableError:
            return False
        return True

    def note_read(self, table: TableProgress, rows: int, size_bytes: int, seconds: float) -> None:
        """Adapt the size of the next chunks of ``table`` to the time and the size of a chunk that was read."""
        planned = self._rows_of(table)
        if rows < planned // 2:
            return  # the last chunk of the table
        target = rows * min(CHUNK_SECONDS / max(seconds, 0.001), CHUNK_BYTES / max(size_bytes, 1))
        self._rows[table.name] = int(max(FEWEST_ROWS, min(target, planned * _GROWTH)))

    def _rows_of(self, table: TableProgress) -> int:
        """The number of rows of the next chunk of ``table``."""
        rows = self._rows.get(table.name)
        if rows is None:
            rows = max(FEWEST_ROWS, min(FIRST_ROWS, FIRST_BYTES // max(table.row_bytes, 1)))
        return min(rows, self._most_rows)

    def _likely_rows(self, chunk: PlannedChunk, table: TableProgress) -> int:
        planned = self._rows_of(table)
        if chunk.within == ALL_ROWS:  # the table is smaller than one chunk
            return min(planned, table.estimated_rows)
        return planned

    def _next(self, snapshot: SnapshotRecord) -> Iterator[tuple[PlannedChunk | None, TableProgress]]:
        """Yield each next chunk with its table's progress after it, and (None, table) for a dropped table."""
        left = [table for table in snapshot.tables if not table.at_end]
        for at, table in enumerate(left):
            try:
                yield from self._chunks(table, left[at : at + _SCHEMAS_AT_ONCE])
            except NoSuchTableError:
                without = self._without_table(snapshot, table)
                yield from ((None, each) for each in without.tables if each.name == table.name and each.gone)

    def _chunks(
        self, table: TableProgress, likely: Sequence[TableProgress]
    ) -> Iterator[tuple[PlannedChunk, TableProgress]]:
        """Yield each chunk of ``table`` with the table's progress after it.

        The schemas of the tables ``likely`` are read by the same query.

        Raises NoSuchTableError if the server does not list the table.
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
        """The key of ``table``. The schemas of the tables ``likely`` are read by the same query."""
        if table.name not in self._keys:
            name = (table.database, table.table)
            if name not in self._schemas:
                names = ((each.database, each.table) for each in likely if each.name not in self._keys)
                self._schemas = table_schemas(self._session, names)
            schema = self._schemas.get(name)
            if schema is None:
                raise NoSuchTableError(f"table {table.name} does not exist any more")
            if key_text(schema) != table.key:
                raise SchemaError(
                    f"expected the primary key ({table.key}) of {table.name}, as when the snapshot began, found "
                    f"({key_text(schema)}): the published part is a range of the old key. Start a new snapshot of it."
                )
            self._keys[table.name] = TableKey.of(schema)
        return self._keys[table.name]
