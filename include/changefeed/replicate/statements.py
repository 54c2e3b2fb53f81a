"""Runs changes in statement format on a follower, if they are known to have the same effect as on the source.

Such a statement has no row events, so the follower runs its text: with the session variables and the time from the
binlog, in commit order, and in one transaction with other changes. If a statement may have another effect on the
follower, the run stops before the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from changefeed.binlog.events.charsets import charset_of
from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.names import TableName
from changefeed.ddl.repeatable import doubt_of_numbers, doubt_of_repeat
from changefeed.ddl.session import Server, SessionContext
from changefeed.errors import BadRecordError, FollowerError, SettingsError
from changefeed.formats.reader import Envelope
from changefeed.model.charset_codes import PASSED_THROUGH, is_multi_byte
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import TableSchema
from changefeed.replicate.batch_sessions import BatchSessions, TouchedRows
from changefeed.replicate.filling import split_name
from changefeed.replicate.refills import Refills
from changefeed.replicate.source_session import check_session, enter
from changefeed.replicate.table_changes import TableChanges
from changefeed.source.mysql.follower_session import FollowerSession

_NOW = "CURRENT_TIMESTAMP"
_STRICT = 1 << 21 | 1 << 22
"""STRICT_TRANS_TABLES and STRICT_ALL_TABLES."""
_UTF8 = 255
"""The collation to assume if an event does not have the client's."""


@dataclass(frozen=True)
class ChangeStatement:
    """The statement ``sql``, which ran at ``at`` (FILE:POSITION) in ``session`` with the default ``database``.

    - ``doubt``: why it may have another effect on ``tables`` if it is repeated; '' without a reason.
    - ``reach``: why it may have changed other tables, or at another position of the binlog; '' without a reason.
    """

    at: str
    sql: str
    database: str
    session: Mapping[str, Any]
    tables: tuple[str, ...]
    doubt: str
    reach: str

    @classmethod
    def of(cls, change: Envelope) -> ChangeStatement:
        """The statement of a record of op `q`. Raises BadRecordError if the record cannot be read."""
        fields, at = change.fields, f"{change.file}:{change.position}"
        try:
            session = dict(fields.get("session") or {})
            check_session(session)
            return cls(
                at,
                fields["sql"] or "",
                fields["database"] or "",
                session,
                tuple(fields["tables"]),
                _doubt_of_record(fields),
                str(fields["doubt"] or ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadRecordError(
                f"the record of the change in statement format at {at} cannot be read ({error!r})"
            ) from error

    @property
    def names(self) -> tuple[TableName, ...]:
        """The names of the tables that the statement writes."""
        return tuple(TableName(*split_name(each)) for each in self.tables)

    def refusal(self, doubt: str) -> SettingsError:
        """The error for a statement that is not run because of ``doubt``, if a snapshot cannot fill its tables."""
        return SettingsError(
            f"{self.problem(doubt)} Set binlog_format=ROW on the source, copy its tables to the follower again, and "
            "give the coordinates of the copy with --from."
        )

    def problem(self, doubt: str) -> str:
        """The first sentence of an error message about the statement."""
        return (
            f"{self.at} is a change in statement format, {self.sql[:200]!r}, and may have another effect on the "
            f"follower: {doubt}."
        )

    def doubt_on(self, table: TableSchema, server: Server, *, is_transactional: bool) -> str:
        """Why the statement may have another effect on the follower's ``table`` than on the source's; '' if not."""
        if self.doubt:
            return self.doubt
        name = f"{table.database}.{table.table}"
        if not is_transactional:
            return f"{name} is not of InnoDB there, so a retry could apply it twice"
        if defaults := [
            column.name
            for column in table.columns
            if column.default and column.default.is_sql and not (column.default.text or "").startswith(_NOW)
        ]:
            return f"the default of {name}.{defaults[0]} is computed again"
        sql_mode = int(self.session.get("sql_mode", 0))
        if not sql_mode & _STRICT and any(
            column.data_type == "timestamp" and not column.nullable for column in table.columns
        ):
            return f"explicit_defaults_for_timestamp is not in the binlog, and what NULL is in {name} depends on it"
        context = self._context
        named = read_statement(self.sql, context, server).tables
        if tuple(f"{each.database}.{each.table}" for each in named) != self.tables or len(named) != 1:
            return "it writes more than one table"
        keys = sum(index.unique for index in table.indexes or ()) + bool(table.primary_key)
        known = frozenset(each["name"].lower() for each in self.session.get("user_variables", ()))
        doubt = doubt_of_repeat(self.sql, context, server, known, one_unique_key=keys < 2)
        counted = [column.name for column in table.columns if column.auto_increment]
        if not doubt and counted and "insert_id" in self.session:
            names = [column.name for column in table.columns]
            doubt = doubt_of_numbers(self.sql, context, server, names, counted[0])
        return doubt

    @property
    def _context(self) -> SessionContext:
        return SessionContext.of_sql_mode(self.database, int(self.session.get("sql_mode", 0)))

    def run(self, session: FollowerSession) -> None:
        """Run the statement in the session's transaction. Raises FollowerError if the follower refuses it."""
        session.begin()
        try:
            enter(session, self.session, self.database, self._context)
            session.write(self.sql)
        except FollowerError as error:
            raise FollowerError(f"{error}. The statement of the source is {self.sql[:500]!r}.", error.code) from error
        session.apply_settings()


@dataclass
class Statements:
    """Runs changes in statement format on ``server`` through ``batches``, if it ``is_enabled``.

    ``captures`` says whether the pipeline captures a table; the follower's copy of another table is not up to date. If
    a statement is refused, ``refills`` finds or requests a snapshot that fills its tables.
    """

    batches: BatchSessions
    server: Server
    is_enabled: bool
    captures: Callable[[str, str], bool]
    refills: Refills
    _last: str = ""
    """The coordinates of the last statement in the binlog."""

    def check(self, change: Envelope, *, is_skipped: bool = False) -> None:
        """Check that a record of op `q` may be run. Does not read the follower's tables.

        ``is_skipped`` says that a snapshot creates the table later. Raises SettingsError if the statement is never run.
        If its tables are known and captured, raises what `Refills.fill_anew` raises.
        """
        statement = ChangeStatement.of(change)
        if not self.is_enabled:
            raise statement.refusal(
                "triggers and functions of the source may have taken part, which the binlog does not say. If it has "
                "none, set `statements: run` in the follower's settings (--statements run): safe ones are then run"
            )
        if statement.reach or not statement.tables:
            raise statement.refusal(statement.reach or "its text does not say which tables it writes")
        name = f"{change.database}.{change.table}"
        if name not in statement.tables:
            raise statement.refusal(f"its record is of {name}, and it writes another table")
        if others := [each for each in statement.tables if not self.captures(*split_name(each))]:
            raise statement.refusal(f"the pipeline does not capture {others[0]}, so the follower's copy may differ")
        if is_skipped and len(statement.tables) == 1:
            return
        if len(statement.tables) != 1:
            self._fill_anew(statement, f"it writes {len(statement.tables)} tables")
        if name in self.refills.commits.filling.state.unfilled:
            self._fill_anew(statement, f"a snapshot still fills {name}, so it would not find the source's rows")

    def _fill_anew(self, statement: ChangeStatement, doubt: str) -> NoReturn:
        self.refills.fill_anew(statement.names, BinlogCoordinates.parse(statement.at), statement.problem(doubt))

    def run(self, change: Envelope, changes: TableChanges) -> bool:
        """Run a statement that writes the table of ``changes`` after all earlier changes, while no other batch is open.

        Returns false if it is the same statement as the last one: each of its topics has a record of it. If it may have
        another effect than on the source, raises what `Refills.fill_anew` raises.
        """
        statement = ChangeStatement.of(change)
        if statement.at == self._last:
            return False
        doubt = statement.doubt_on(changes.table, self.server, is_transactional=not changes.cannot_roll_back)
        if doubt:
            self._fill_anew(statement, doubt)
        self.batches.put(statement.run, TouchedRows(changes.name), len(statement.sql), alone=True)
        self._last = statement.at
        return True


def _doubt_of_record(fields: Mapping[str, Any]) -> str:
    if "thread_specific" not in fields:
        return "its record does not have the values of its session that it used"
    if fields["sql"] is None:
        return "its text is not in the record"
    if fields["thread_specific"]:
        return "it uses a temporary table"
    if fields["error_code"]:
        return f"it failed on the source with error {fields['error_code']} after a part of it"
    if "\ufffd" in fields["sql"]:
        return "its text has bytes that are undefined in its charset"
    session = fields.get("session") or {}
    if session.get("sql_auto_is_null"):
        return "the result of IS NULL depends on the statement before it (sql_auto_is_null)"
    return _doubt_of_bytes(fields["sql"], session)


def _doubt_of_bytes(sql: str, session: Mapping[str, Any]) -> str:
    """Why literals of ``sql``, which is sent in utf8mb4, may differ from the original literals; '' if they cannot."""
    client, literals = (
        charset_of(session.get(name, _UTF8)) or "unknown" for name in ("character_set_client", "collation_connection")
    )
    if client == "utf8mb4" or (client != "swe7" and sql.isascii()):
        return ""
    if client == "utf8mb3":
        same = max(sql) <= "\uffff"
    elif "binary" in (client, literals):
        same = client == literals
    else:
        same = client not in (*PASSED_THROUGH, "swe7", "unknown") and not is_multi_byte(client)
    return "" if same else f"its text is in {client}, and may have other bytes in utf8mb4"
