"""The schemas along a slice: those at its start, moved by each of its statements as the history has them."""

from __future__ import annotations

from changefeed.ddl.ddl_statement import DdlStatement
from changefeed.ddl.history import SchemaHistory, read_logged
from changefeed.ddl.schemas import Schemas
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.model.window import Slice


class SchemaFollower:
    """Follows the statements of one slice through ``history``; without one it begins with no tables."""

    def __init__(self, history: SchemaHistory | None, piece: Slice) -> None:
        self._history = history
        self._at = BinlogCoordinates(piece.file, piece.start - 1)
        """Statements up to here are in the schemas."""
        self.schemas = history.at(BinlogCoordinates(piece.file, piece.start)) if history else Schemas()

    def lookup(self, database: str, table: str) -> TableSchema | None:
        """A `SchemaLookup` for rows behind the last statement; raises SchemaError where a table is not known."""
        return self.schemas.lookup(database, table)

    def read(self, statement: Statement) -> DdlStatement:
        """A statement as the server of the history ran it."""
        collations = self._history.collations if self._history else {}
        return read_logged(statement, self.schemas.server, collations, self.schemas.tables)

    def take(self, statement: Statement, read: DdlStatement | None = None) -> Schemas:
        """Move the schemas by a statement, and return those before it.

        They become what the history has behind the statement, which may be more than the statement says.
        """
        at, last = BinlogCoordinates(statement.file, statement.position), self._at
        before, self._at = self.schemas, at
        timeline = self._history.timeline if self._history else None
        entries = timeline.between(last, at) if timeline else ()
        if timeline and entries:
            self.schemas = timeline.after(before, entries)
        if not entries or entries[-1].coordinates != at:
            self.schemas = self.schemas.apply(read or self.read(statement))
        return before

    def follow(self, statement: Statement) -> None:
        """`take`, for whoever does not ask what was before."""
        self.take(statement)
