"""The schemas along a slice: those at its start, changed by each statement as recorded in the schema history."""

from __future__ import annotations

from changefeed.ddl.ddl_statement import DdlStatement
from changefeed.ddl.history import SchemaHistory, read_logged
from changefeed.ddl.schemas import Schemas
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.model.window import Slice


class SchemaFollower:
    """Applies the statements of one slice to the schemas of ``history``; without a history there are no tables at
    first."""

    def __init__(self, history: SchemaHistory | None, slice: Slice) -> None:
        self._history = history
        self._at = BinlogCoordinates(slice.file, slice.start - 1)
        """The schemas include the statements up to here."""
        self.schemas = history.at(BinlogCoordinates(slice.file, slice.start)) if history else Schemas()

    def lookup(self, database: str, table: str) -> TableSchema | None:
        """A `SchemaLookup` for rows after the last statement; raises SchemaError for an unknown table."""
        return self.schemas.lookup(database, table)

    def read(self, statement: Statement) -> DdlStatement:
        """The parsed statement, by the rules of the history's server."""
        collations = self._history.collations if self._history else {}
        return read_logged(statement, self.schemas.server, collations, self.schemas.tables)

    def take(self, statement: Statement, read: DdlStatement | None = None) -> Schemas:
        """Apply a statement, and return the schemas before it.

        The new schemas are the history's schemas after the statement, which may differ by more than the statement
        changes.
        """
        at, last = BinlogCoordinates(statement.file, statement.position), self._at
        before, self._at = self.schemas, at
        timeline = self._history.timeline if self._history else None
        entries = timeline.between(last, at) if timeline else ()
        if timeline and entries:
            self.schemas = timeline.after(before, entries)
        if not entries or entries[-1].coordinates != at:
            after = self.schemas.apply(read or self.read(statement))
            is_frozen = self._history is not None and self._history.is_frozen and after is not before
            self.schemas = after.with_tables_of(before) if is_frozen else after
        return before

    def follow(self, statement: Statement) -> None:
        """Apply a statement."""
        self.take(statement)
