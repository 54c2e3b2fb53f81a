"""A pipeline's schema history: the schemas along its binlog, and the range of the binlog in which they are known."""

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
"""The number of stored entries. Older entries are folded into the initial schemas."""


def read_logged(
    statement: Statement,
    server: Server,
    collations: Mapping[int, str],
    known: Mapping[TableName, Entry] = NO_TABLES,
) -> DdlStatement:
    """The parsed statement of the binlog, as its server executed it.

    ``collations`` are names by id. ``known`` has the tables before the statement. Raises BinlogFormatError if the
    status variables of its event are damaged.
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
        return DdlStatement(read.sql, session, Kind.HARMLESS)  # a statement on a temporary table
    if isinstance(read.change, CreateTableLike):
        problem = "the session had temporary tables, and the model may be one"
        unread = UnreadChange((read.change.name,), problem)
        return DdlStatement(read.sql, session, read.kind, read.tables, unread)
    return read


def _asks_for_connection(read: DdlStatement, known: Mapping[TableName, Entry]) -> bool:
    """Whether CONNECTION_ID() may have set the thread-specific flag of the event. Temporary tables also set this flag.

    The function may be in the statement's text, or in a default of a table that the statement opens."""
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
    """The schemas of server ``server_uuid`` for events in ``[since, until)``. Methods return new histories.

    ``collations`` has the server's collation names by id, because the session of a statement has charsets by number.
    """

    server_uuid: str
    since: BinlogCoordinates
    until: BinlogCoordinates
    timeline: SchemaTimeline
    collations: Mapping[int, str] = field(default_factory=dict)
    id: str = ""
    """The id of the stored history, for manifests of windows that did not change it; '' after a change."""
    tables_known: bool = True
    """False if the tables were not read because nothing needs them. Such a history is not stored."""
    elsewhere: tuple[str, BinlogCoordinates] | None = None
    """(server, coordinates): another server's coordinates at which its schemas are those at ``since``.

    A failover continued the history of that server, and can go back to it."""
    is_frozen: bool = False
    """Whether DDL changes no known table (`freeze_schema`)."""
    file: FileIdentity | None = None
    """The identity of a file of the history's binlog, which distinguishes it from another binlog with the same names;
    None if only an archive has the file."""

    @property
    def server(self) -> Server:
        """The server that wrote the binlog."""
        return self.timeline.initial.server

    def covers(self, server_uuid: str, start: BinlogCoordinates) -> bool:
        """Whether reading may begin at ``start``: the history then has all DDL before ``start``."""
        if server_uuid != self.server_uuid or start.base != self.since.base:
            return False
        return self.since <= start <= self.until

    def schemas_at(self, server_uuid: str, coordinates: BinlogCoordinates) -> Schemas | None:
        """The schemas at the coordinates of any server, for a failover; None if they are not known."""
        if self.elsewhere == (server_uuid, coordinates):
            return self.timeline.initial
        return self.at(coordinates) if self.covers(server_uuid, coordinates) else None

    def at(self, coordinates: BinlogCoordinates) -> Schemas:
        """The schemas for an event that begins at ``coordinates``. Raises SchemaError if that is before ``since``."""
        if coordinates < self.since:
            raise SchemaError(
                f"schemas are required for {coordinates}, and known only from {self.since} on. Seek to later "
                "coordinates, or set binlog_row_metadata=FULL so that the binlog names its columns."
            )
        return self.timeline.at(coordinates)

    def read(self, statement: Statement) -> DdlStatement:
        """The result of `read_logged` for a statement of this server after the history's last statement."""
        return read_logged(statement, self.server, self.collations, self.timeline.latest.tables)

    def advance(self, statement: Statement) -> SchemaHistory:
        """The history with this statement. The same object for a known statement, and for one without DDL."""
        at = BinlogCoordinates(statement.file, statement.position)
        timeline = self.timeline.advance(at, self.read(statement), frozen=self.is_frozen)
        if timeline is self.timeline:
            return self
        # After TRUNCATE, or DDL without effect, the stored history has the same schemas, so its id stays.
        id = self.id if timeline.entries[-1].changes_nothing else ""
        return replace(self, timeline=timeline, id=id)

    def extend_to(self, head: BinlogCoordinates) -> SchemaHistory:
        """The history after a window up to ``head``. The history must have the window's statements."""
        return replace(self, until=max(self.until, head))

    def with_id(self, id: str, start: BinlogCoordinates) -> SchemaHistory:
        """The history to store under ``id``, with at most KEPT_ENTRIES entries.

        Entries after ``start`` are not folded, because a retry may read from there until the window is sealed.
        """
        entries = self.timeline.entries
        if len(entries) <= KEPT_ENTRIES:
            return replace(self, id=id)
        since = max(self.since, min(entries[-KEPT_ENTRIES].coordinates, start))
        return replace(self, since=since, timeline=self.timeline.fold(since), id=id, elsewhere=None)

    def freeze(self, start: BinlogCoordinates) -> SchemaHistory:
        """The history from ``start`` on in which DDL changes no known table; the same object if it is frozen."""
        if self.is_frozen:
            return self
        timeline = self.timeline.freeze(start)
        return replace(self, since=start, timeline=timeline, id="", elsewhere=None, is_frozen=True)

    def relearn_table(self, table: Table) -> SchemaHistory:
        """The history with ``table``, as the server has it now, for rows from ``until`` on."""
        return replace(self, timeline=self.timeline.relearn(self.until, table), id="")

    def continue_with(self, anew: SchemaHistory) -> SchemaHistory:
        """This history up to ``until``, and ``anew`` from there on."""
        return replace(self, timeline=self.timeline.continue_with(self.until, anew.timeline), id="")

    def to_json(self) -> dict[str, Any]:
        """Values for `json`, which `from_json` reads."""
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
        if self.is_frozen:
            values["frozen"] = True
        return values | ({"file": self.file.to_json()} if self.file else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SchemaHistory:
        """The history from values of `to_json`. Raises CheckpointError for values of another version."""
        return cls(
            values["server_uuid"],
            BinlogCoordinates.parse(values["since"]),
            BinlogCoordinates.parse(values["until"]),
            SchemaTimeline.from_json(values["timeline"]),
            {int(number): name for number, name in values["collations"].items()},
            values["id"],
            elsewhere=_elsewhere(values.get("elsewhere")),
            file=FileIdentity(**values["file"]) if "file" in values else None,
            is_frozen=values.get("frozen", False),
        )


def _elsewhere(values: Sequence[str] | None) -> tuple[str, BinlogCoordinates] | None:
    return (values[0], BinlogCoordinates.parse(values[1])) if values else None
