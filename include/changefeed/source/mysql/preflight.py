"""Checks the requirements of a source, and which tables its user may read; each fault is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pymysql.constants import ER

from changefeed.errors import SourceError
from changefeed.model.identifier import quote_name
from changefeed.source.mysql.own_tables import OWN_DATABASES
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.shown_create import shown_create

Check = Callable[[Session, Mapping[str, str]], str | None]
"""Returns fault and remedy in one sentence, or None. The mapping has the server's VARIABLES."""

VARIABLES = ("log_bin", "binlog_format", "server_id")


def preflight(session: Session, *, statements: str = "fail") -> None:
    """Raises SourceError if the source misses requirements; the message has a line for each.

    ``statements`` is the pipeline's setting. Unless it is `fail`, sessions of the server may log statements.
    """
    checks = CHECKS if statements == "fail" else [check for check in CHECKS if check is not _format_is_row]
    variables = session.variables(*VARIABLES)
    faults = [fault for check in checks if (fault := check(session, variables))]
    if faults:
        raise SourceError("\n".join(f"{session.connection}: {fault}" for fault in faults))


def _binlog_is_on(_: Session, variables: Mapping[str, str]) -> str | None:
    if variables.get("log_bin") == "ON":
        return None
    return "log_bin is OFF: the server writes no binlog, so there is nothing to read; start it with --log-bin"


def _format_is_row(_: Session, variables: Mapping[str, str]) -> str | None:
    binlog_format = variables.get("binlog_format")
    if binlog_format in (None, "ROW"):  # None: the newest servers support only ROW and have no such variable
        return None
    return (
        f"binlog_format is {binlog_format!r}, expected 'ROW': statements cannot be turned into row changes; "
        "SET GLOBAL binlog_format = 'ROW' (open sessions keep theirs until they reconnect). `statements: publish` in "
        "the pipeline reads such a server, and publishes statements as records of their own"
    )


def _may_read(session: Session, _: Mapping[str, str]) -> str | None:
    grants = " ".join(str(row[0]).upper() for row in session.rows("SHOW GRANTS"))
    if "ALL PRIVILEGES ON *.*" in grants or "REPLICATION SLAVE" in grants or "REPLICATION REPLICA" in grants:
        return None
    return (
        f"user {session.connection.user!r} does not have REPLICATION SLAVE: "
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO {session.connection.user!r}"
    )


def _server_id_is_set(_: Session, variables: Mapping[str, str]) -> str | None:
    if variables.get("server_id") != "0":
        return None
    return "server_id is 0: such a server refuses to send its binlog; SET GLOBAL server_id to a number of its own"


CHECKS: tuple[Check, ...] = (_binlog_is_on, _format_is_row, _may_read, _server_id_is_set)


NOWHERE = "changefeed_rights"
"""A name that no database and no table is expected to have."""

_DENIED = {ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR}
_COLUMNS = """
SELECT DISTINCT table_schema, table_name FROM information_schema.columns
WHERE NOT FIND_IN_SET('select', privileges) AND table_schema NOT IN %s
"""


def may_select(session: Session, database: str, table: str) -> bool:
    """Whether the user may SELECT anything from the table.

    If the table does not exist, the user needs the privilege on the database or on all databases. Without it the server
    does not show whether the table exists."""
    return not _is_denied(lambda: session.rows(f"SELECT 1 FROM {quote_name(database)}.{quote_name(table)} LIMIT 0"))


def unreadable(session: Session, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The tables (database, table) among ``names`` that the user may not read completely, each with fault and GRANT."""
    if session.variable("partial_revokes") != "ON" and may_select(session, NOWHERE, NOWHERE):
        return {}
    in_part = {(str(database), str(table)) for database, table in session.rows(_COLUMNS, OWN_DATABASES)}
    found = {}
    for database, table in names:
        user, name = session.connection.user, f"{quote_name(database)}.{quote_name(table)}"
        grant = f"GRANT SELECT ON {name} TO {user!r}"
        if not may_select(session, database, table):
            found[database, table] = f"user {user!r} may not SELECT from {database}.{table}: {grant}"
        # a user with privileges on some columns does not see the others
        elif (database, table) in in_part or _is_denied(partial(shown_create, session, database, table)):
            found[database, table] = f"user {user!r} may SELECT only some columns of {database}.{table}: {grant}"
    return found


def _is_denied(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except SourceError as error:
        cause = error.__cause__
        return cause is not None and bool(cause.args) and cause.args[0] in _DENIED
    return False
