"""What a source must have before a window is read; each setting that is wrong is told in one sentence."""

from __future__ import annotations

from collections.abc import Callable

from changefeed.errors import SourceError
from changefeed.mysql.session import Session

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
