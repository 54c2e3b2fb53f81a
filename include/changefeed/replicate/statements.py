"""Changes in statement format, run on a follower as they ran on the source, where they are known to do the same.

No row event holds what such a statement did, so it is run again: in its session, with its time and with what the binlog
says that it took from its session, in its place among the changes and in one transaction with them. A statement that
may do something else on the follower stops the run before it is begun.
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
from changefeed.model.charset_codes import PASSED, is_multi_byte
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import TableSchema
from changefeed.replicate.batch_sessions import BatchSessions, Touched
from changefeed.replicate.filling import parts_of
from changefeed.replicate.refills import Refills
from changefeed.replicate.source_session import check_session, enter
from changefeed.replicate.table_changes import TableChanges
from changefeed.source.mysql.follower_session import FollowerSession

_NOW = "CURRENT_TIMESTAMP"
_STRICT = 1 << 21 | 1 << 22
"""STRICT_TRANS_TABLES and STRICT_ALL_TABLES."""
_UTF8 = 255
"""A collation of what a client speaks if its event does not say."""


@dataclass(frozen=True)
class ChangeStatement:
    """The statement ``sql``, which ran at ``at`` (FILE:POSITION) in ``session``, with ``database`` as its default.

    ``doubt`` says why it may do something else to ``tables`` again, ``reach`` why it may have changed others, or that
    elsewhere than where it stands.
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
        """Read a record of op `q`. Raises BadRecordError for what is none."""
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
        """The tables that it writes."""
        return tuple(TableName(*parts_of(each)) for each in self.tables)

    def refusal(self, doubt: str) -> SettingsError:
        """The error of a statement that is not run, because of ``doubt``; which tables it wrote is not known."""
        return SettingsError(
            f"{self.problem(doubt)} Set binlog_format=ROW on the source, copy its tables to the follower anew, and "
            "give the coordinates of the copy with --from."
        )

    def problem(self, doubt: str) -> str:
        """The beginning of an error about it."""
        return (
            f"{self.at} is a change in statement format, {self.sql[:200]!r}, and it is not known that it does the same "
            f"on the follower: {doubt}."
        )

    def doubt_on(self, table: TableSchema, server: Server, *, is_transactional: bool) -> str:
        """Why it may do something else to ``table`` of the follower than it did to that of the source, or ''."""
        if self.doubt:
            return self.doubt
        name = f"{table.database}.{table.table}"
        if not is_transactional:
            return f"{name} is not of InnoDB there, so it could be done twice"
        if defaults := [
            column.name
            for column in table.columns
            if column.default and column.default.is_sql and not (column.default.text or "").startswith(_NOW)
        ]:
            return f"the default of {name}.{defaults[0]} is worked out anew"
        sql_mode = int(self.session.get("sql_mode", 0))
        if not sql_mode & _STRICT and any(
            column.data_type == "timestamp" and not column.nullable for column in table.columns
        ):
            return f"the binlog does not tell its explicit_defaults_for_timestamp: what NULL is in {name} depends on it"
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
        """Run it in the session's transaction. Raises FollowerError for what the follower refuses."""
        session.begin()
        try:
            enter(session, self.session, self.database, self._context)
            session.write(self.sql)
        except FollowerError as error:
            raise FollowerError(f"{error}. It was to run {self.sql[:500]!r}, as the source did.", error.code) from error
        session.settle()


@dataclass
class Statements:
    """Has changes in statement format of a source on ``server`` run by ``batches``, if they ``are_run`` at all.

    ``captures`` says whether the pipeline has the rows of a table: a follower's copy of another is not kept up. By
    ``refills`` tables are filled anew that a statement wrote which is not run.
    """

    batches: BatchSessions
    server: Server
    are_run: bool
    captures: Callable[[str, str], bool]
    refills: Refills
    _last: str = ""
    """Where the last one stands that was given."""

    def check(self, change: Envelope, *, is_skipped: bool = False) -> None:
        """Raises SettingsError for a record of op `q` that is not run, whatever the follower's tables are; as
        `Refills.fill_anew` where it is known which tables it wrote. ``is_skipped`` says that a snapshot comes with the
        table's rows."""
        statement = ChangeStatement.of(change)
        if not self.are_run:
            raise statement.refusal(
                "triggers and functions of the source may have taken part, of which the binlog tells nothing. If it "
                "has none, `statements: run` in the follower's settings (--statements run) has what is safe run"
            )
        if statement.reach or not statement.tables:
            raise statement.refusal(statement.reach or "its text does not say which tables it writes")
        name = f"{change.database}.{change.table}"
        if name not in statement.tables:
            raise statement.refusal(f"its record is of {name}, and it writes another table")
        if others := [each for each in statement.tables if not self.captures(*parts_of(each))]:
            raise statement.refusal(f"the pipeline does not capture {others[0]}, so the follower's is another")
        if is_skipped and len(statement.tables) == 1:
            return
        if len(statement.tables) != 1:
            self._fill_anew(statement, f"it writes {len(statement.tables)} tables")
        if name in self.refills.commits.filling.state.unfilled:
            self._fill_anew(statement, f"a snapshot still fills {name}, whose rows are not what they were for it")

    def _fill_anew(self, statement: ChangeStatement, doubt: str) -> NoReturn:
        self.refills.fill_anew(statement.names, BinlogCoordinates.parse(statement.at), statement.problem(doubt))

    def run(self, change: Envelope, changes: TableChanges) -> bool:
        """Have a statement that writes the table of ``changes`` run behind all that was given, beside nothing else.

        False where it was the last one, too: each topic that it concerns has its record. Raises SettingsError where it
        may do something else than on the source.
        """
        statement = ChangeStatement.of(change)
        if statement.at == self._last:
            return False
        doubt = statement.doubt_on(changes.table, self.server, is_transactional=not changes.lasting)
        if doubt:
            self._fill_anew(statement, doubt)
        self.batches.put(statement.run, Touched(changes.name), len(statement.sql), alone=True)
        self._last = statement.at
        return True


def _doubt_of_record(fields: Mapping[str, Any]) -> str:
    if "thread_specific" not in fields:
        return "its record does not have what it took from its session"
    if fields["sql"] is None:
        return "its text is not in the record"
    if fields["thread_specific"]:
        return "it uses a temporary table"
    if fields["error_code"]:
        return f"it failed on the source with error {fields['error_code']}, with a part of it done"
    if "\ufffd" in fields["sql"]:
        return "its text has bytes that are no characters of its charset"
    session = fields.get("session") or {}
    if session.get("sql_auto_is_null"):
        return "what IS NULL finds depends on the statement before it (sql_auto_is_null)"
    return _doubt_of_bytes(fields["sql"], session)


def _doubt_of_bytes(sql: str, session: Mapping[str, Any]) -> str:
    """Why literals of ``sql``, sent in utf8mb4, may have other bytes than the client of ``session`` sent, or ''."""
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
        same = client not in (*PASSED, "swe7", "unknown") and not is_multi_byte(client)
    return "" if same else f"its text is in {client}, and its bytes may be others in utf8mb4"
