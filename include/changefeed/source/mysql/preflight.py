"""What a source must have before a window is read, and which tables its user may read: each fault in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pymysql.constants import ER

from changefeed.errors import SourceError
from changefeed.model.identifier import quoted
from changefeed.source.mysql.own_tables import OWN_DATABASES
from changefeed.source.mysql.session import Session

Check = Callable[[Session], str | None]
"""Says in one sentence what is wrong and what to do, or None."""


def preflight(session: Session, *, statements: str = "fail") -> None:
    """Raises SourceError with everything that is wrong with the source, one line each.

    ``statements`` is the pipeline's: unless it is `fail`, a server whose sessions log statements is read, too.
    """
    checks = CHECKS if statements == "fail" else [check for check in CHECKS if check is not _format_is_row]
    faults = [fault for check in checks if (fault := check(session))]
    if faults:
        raise SourceError("\n".join(f"{session.connection}: {fault}" for fault in faults))


def _binlog_is_on(session: Session) -> str | None:
    if session.variable("log_bin") == "ON":
        return None
    return "log_bin is OFF: the server writes no binlog, so there is nothing to read; start it with --log-bin"


def _format_is_row(session: Session) -> str | None:
    binlog_format = session.variable("binlog_format")
    if binlog_format in (None, "ROW"):  # gone from the newest servers, where ROW is all there is
        return None
    return (
        f"binlog_format is {binlog_format!r}, wanted 'ROW': statements cannot be turned into row changes; "
        "SET GLOBAL binlog_format = 'ROW' (open sessions keep theirs until they reconnect). `statements: publish` in "
        "the pipeline reads such a server, and publishes statements as records of their own"
    )


def _may_read(session: Session) -> str | None:
    grants = " ".join(str(row[0]).upper() for row in session.rows("SHOW GRANTS"))
    if "ALL PRIVILEGES ON *.*" in grants or "REPLICATION SLAVE" in grants or "REPLICATION REPLICA" in grants:
        return None
    return (
        f"user {session.connection.user!r} lacks REPLICATION SLAVE: "
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO {session.connection.user!r}"
    )


def _server_id_is_set(session: Session) -> str | None:
    if session.variable("server_id") != "0":
        return None
    return "server_id is 0: such a server refuses to send its binlog; SET GLOBAL server_id to a number of its own"


CHECKS: tuple[Check, ...] = (_binlog_is_on, _format_is_row, _may_read, _server_id_is_set)


NOWHERE = "changefeed_rights"
"""No database and no table has this name."""

_DENIED = {ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR}
_COLUMNS = """
SELECT DISTINCT table_schema, table_name FROM information_schema.columns
WHERE NOT FIND_IN_SET('select', privileges) AND table_schema NOT IN %s
"""


def may_select(session: Session, database: str, table: str) -> bool:
    """Whether the user may SELECT anything from the table. Where the table is not there, the right to the database, or
    to all of them, decides: without one the server does not say whether there is such a table."""
    return not _is_denied(session, f"SELECT 1 FROM {quoted(database)}.{quoted(table)} LIMIT 0")


def unreadable(session: Session, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The (database, table) of ``names`` that the user may not read, or only some columns of, each with what is wrong
    and the GRANT that mends it."""
    if session.variable("partial_revokes") != "ON" and may_select(session, NOWHERE, NOWHERE):
        return {}
    in_part = {(str(database), str(table)) for database, table in session.rows(_COLUMNS, OWN_DATABASES)}
    found = {}
    for database, table in names:
        user, name = session.connection.user, f"{quoted(database)}.{quoted(table)}"
        grant = f"GRANT SELECT ON {name} TO {user!r}"
        if not may_select(session, database, table):
            found[database, table] = f"user {user!r} may not SELECT from {database}.{table}: {grant}"
        # with rights to some of its columns only, the user does not even see the others
        elif (database, table) in in_part or _is_denied(session, f"SHOW CREATE TABLE {name}"):
            found[database, table] = f"user {user!r} may SELECT only some columns of {database}.{table}: {grant}"
    return found


def _is_denied(session: Session, sql: str) -> bool:
    try:
        session.rows(sql)
    except SourceError as error:
        cause = error.__cause__
        return cause is not None and bool(cause.args) and cause.args[0] in _DENIED
    return False
