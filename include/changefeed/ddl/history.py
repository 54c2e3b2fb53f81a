"""A pipeline's schema history: the schemas along its binlog, and the stretch of it that they are known for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from changefeed.ddl.changes import AlterTable, CreateTableLike, TruncateTable, UnreadChange
from changefeed.ddl.ddl_statement import DdlStatement, Kind, read_statement
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.session import Server, SessionContext
from changefeed.ddl.table import Table
from changefeed.ddl.timeline import SchemaTimeline
from changefeed.errors import BinlogFormatError, SchemaError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.file_identity import FileIdentity
from changefeed.model.statement import Statement

_CONNECTION_ID = re.compile(r"connection_id\s*\(", re.IGNORECASE)
NO_TABLES: Mapping[TableName, Entry] = {}
KEPT_ENTRIES = 1000
"""Moves that stay readable each by itself; older moves are folded into the initial schemas."""


def read_logged(
    statement: Statement,
    server: Server,
    collations: Mapping[int, str],
    known: Mapping[TableName, Entry] = NO_TABLES,
) -> DdlStatement:
    """A statement of the binlog, read as its server ran it. ``collations`` are names by id, ``known`` the tables that
    are there before it.

    Raises BinlogFormatError where the status variables of its event are damaged.
    """
    try:
        session = SessionContext.from_status_variables(
            statement.database, bytes.fromhex(statement.variables), collations.get
        )
    except ValueError as error:
        raise BinlogFormatError(
            f"the statement at {statement.file}:{statement.position} has damaged status variables: {error}"
        ) from error
    read = read_statement(statement.sql, session, server, failed=statement.error_code != 0)
    if not statement.is_thread_specific or _asks_for_connection(read, known):
        return read
    if isinstance(read.change, AlterTable | TruncateTable):
        return DdlStatement(read.sql, session, Kind.HARMLESS)  # its table is a temporary one
    if isinstance(read.change, CreateTableLike):
        problem = "the session had temporary tables, and the model may be one"
        unread = UnreadChange((read.change.name,), problem)
        return DdlStatement(read.sql, session, read.kind, read.tables, unread)
    return read


def _asks_for_connection(read: DdlStatement, known: Mapping[TableName, Entry]) -> bool:
    """Whether CONNECTION_ID() accounts for the flag that an event is of its session's thread, as a temporary table
    does: in the statement's text, or in a default of a table that it opens."""
    tables = (known.get(name) for name in read.tables)
    defaults = (
        str(column.default.text)
        for table in tables
        if isinstance(table, Table)
        for column in table.schema.columns
        if column.default
    )
    return any(_CONNECTION_ID.search(text) for text in (read.sql, *defaults))


@dataclass(frozen=True)
class SchemaHistory:
    """Schemas of server ``server_uuid`` for events in ``[since, until)``; a value.

    ``collations`` are the server's, names by id: a statement's session says charsets by number.
    """

    server_uuid: str
    since: BinlogCoordinates
    until: BinlogCoordinates
    timeline: SchemaTimeline
    collations: Mapping[int, str] = field(default_factory=dict)
    id: str = ""
    """Names what is stored, for the seals of windows that changed nothing of it; '' where something was changed."""
    tables_known: bool = True
    """False where the tables were not learned, as nothing needs them; such a history is not stored."""
    elsewhere: tuple[str, BinlogCoordinates] | None = None
    """Server and coordinates in its binlog where the schemas are those at ``since``: the history was carried over from
    there in a failover, and can be carried back."""
    file: FileIdentity | None = None
    """A file of the binlog that it is of, which tells that from another one with the same names; None where an archive
    alone has it."""

    @property
    def server(self) -> Server:
        """The server whose binlog this is."""
        return self.timeline.initial.server

    def covers(self, server_uuid: str, start: BinlogCoordinates) -> bool:
        """Whether reading may begin at ``start``: no definition between is missing."""
        if server_uuid != self.server_uuid or start.base != self.since.base:
            return False
        return self.since <= start <= self.until

    def found_at(self, server_uuid: str, coordinates: BinlogCoordinates) -> Schemas | None:
        """The schemas at coordinates of any server, for whoever carries them over; None where they are not known."""
        if self.elsewhere == (server_uuid, coordinates):
            return self.timeline.initial
        return self.at(coordinates) if self.covers(server_uuid, coordinates) else None

    def at(self, coordinates: BinlogCoordinates) -> Schemas:
        """The schemas for an event that begins at ``coordinates``; raises SchemaError before ``since``."""
        if coordinates < self.since:
            raise SchemaError(
                f"schemas are wanted for {coordinates} and known from {self.since} on only. Seek to later "
                "coordinates, or set binlog_row_metadata=FULL so that the binlog names its columns."
            )
        return self.timeline.at(coordinates)

    def read(self, statement: Statement) -> DdlStatement:
        """`read_logged` on this server, behind all that the history has."""
        return read_logged(statement, self.server, self.collations, self.timeline.latest.tables)

    def advance(self, statement: Statement) -> SchemaHistory:
        """The history with this statement; the same history for a statement that it has, or that defines nothing."""
        at = BinlogCoordinates(statement.file, statement.position)
        timeline = self.timeline.advance(at, self.read(statement))
        if timeline is self.timeline:
            return self
        # TRUNCATE, or a definition of what is there already: whoever reads on without it knows the same schemas.
        id = self.id if timeline.entries[-1].changes_nothing else ""
        return replace(self, timeline=timeline, id=id)

    def reached(self, head: BinlogCoordinates) -> SchemaHistory:
        """The history after a window up to ``head`` whose statements it has."""
        return replace(self, until=max(self.until, head))

    def named(self, id: str, start: BinlogCoordinates) -> SchemaHistory:
        """The history as it is stored under ``id``: beyond KEPT_ENTRIES its oldest moves are folded away.

        None behind ``start`` is: reading may begin there once more, as long as its window is not sealed.
        """
        entries = self.timeline.entries
        if len(entries) <= KEPT_ENTRIES:
            return replace(self, id=id)
        since = max(self.since, min(entries[-KEPT_ENTRIES].coordinates, start))
        return replace(self, since=since, timeline=self.timeline.fold(since), id=id, elsewhere=None)

    def relearned(self, table: Table) -> SchemaHistory:
        """The history with ``table`` as the server has it now, for rows from ``until`` on."""
        return replace(self, timeline=self.timeline.relearn(self.until, table), id="")

    def continued(self, anew: SchemaHistory) -> SchemaHistory:
        """The history up to its end, and ``anew`` from there on."""
        return replace(self, timeline=self.timeline.continued(self.until, anew.timeline), id="")

    def to_json(self) -> dict[str, Any]:
        """As values that `json` writes; `from_json` reads them back."""
        values: dict[str, Any] = {
            "id": self.id,
            "server_uuid": self.server_uuid,
            "since": str(self.since),
            "until": str(self.until),
            "timeline": self.timeline.to_json(),
            "collations": {str(number): name for number, name in self.collations.items()},
        }
        if self.elsewhere:
            values["elsewhere"] = [self.elsewhere[0], str(self.elsewhere[1])]
        return values | ({"file": self.file.to_json()} if self.file else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SchemaHistory:
        """Read what `to_json` made. Raises CheckpointError for values of another version."""
        return cls(
            values["server_uuid"],
            BinlogCoordinates.parse(values["since"]),
            BinlogCoordinates.parse(values["until"]),
            SchemaTimeline.from_json(values["timeline"]),
            {int(number): name for number, name in values["collations"].items()},
            values["id"],
            elsewhere=_elsewhere(values.get("elsewhere")),
            file=FileIdentity(**values["file"]) if "file" in values else None,
        )


def _elsewhere(values: Sequence[str] | None) -> tuple[str, BinlogCoordinates] | None:
    return (values[0], BinlogCoordinates.parse(values[1])) if values else None
