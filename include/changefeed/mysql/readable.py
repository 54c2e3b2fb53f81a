"""Which tables the connection's user may read whole: the server answers, whatever way the rights were granted."""

from __future__ import annotations

from collections.abc import Iterable

from pymysql.constants import ER

from changefeed.errors import SourceError
from changefeed.mysql.catalog import SYSTEM_DATABASES
from changefeed.mysql.session import Session

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
    return not _is_denied(session, f"SELECT 1 FROM {_quoted(database)}.{_quoted(table)} LIMIT 0")


def unreadable(session: Session, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The (database, table) of ``names`` that the user may not read, or only some columns of, each with what is wrong
    and the GRANT that mends it."""
    if session.variable("partial_revokes") != "ON" and may_select(session, NOWHERE, NOWHERE):
        return {}
    in_part = {(str(database), str(table)) for database, table in session.rows(_COLUMNS, SYSTEM_DATABASES)}
    found = {}
    for database, table in names:
        user, name = session.connection.user, f"{_quoted(database)}.{_quoted(table)}"
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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
