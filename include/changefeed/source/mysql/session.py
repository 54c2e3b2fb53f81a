"""A connection to the source for queries, which knows MySQL from MariaDB and raises our errors."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import pymysql
from pymysql.constants import CR, ER

from changefeed.ddl.session import Flavour, Server
from changefeed.errors import ChangefeedError, NoSuchTableError, SourceError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.login import connect

_REFUSED = {ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR, 1227, 1142}
_NO_TABLE = {ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR}
_UNREACHABLE = {CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONNECTION_ERROR}
_BUSY = {ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK}

_NO_COMMON_TLS = {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}
"""OpenSSL's reasons where the server has only versions of TLS that are not accepted here."""

_ASKS_FOR_A_FILE = (
    "it asks for a file of this machine (LOAD DATA LOCAL), which no server has a reason to. Nothing was sent. Find out "
    "who answers at that address"
)

Row = tuple[Any, ...]
Translation = Callable[[MysqlConnection, Exception, int, str], ChangefeedError]
"""Our error for one of PyMySQL's, whose code, or 0, and words come along."""


class Session:
    """One connection; use it as a context manager.

    Raises SourceError where the server refuses user, password or privilege, and SourceUnavailableError where it
    cannot be reached or goes away.
    """

    def __init__(self, connection: MysqlConnection) -> None:
        self.connection = connection
        with self.translated():
            self.raw = connect(connection)
        try:
            (self.version,) = self.row("SELECT @@version")
        except ChangefeedError:
            self.raw.close()
            raise
        self.is_mariadb = "mariadb" in self.version.lower()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()

    def translated(self) -> AbstractContextManager[None]:
        """Turn PyMySQL's errors into what this class raises."""
        return translated(self.connection)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """All rows of a query; ``values`` replace its %s, escaped by the client."""
        with self.translated(), self.raw.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def row(self, sql: str, *values: object) -> Row:
        """The only row of a query; raises SourceError where there are none or several."""
        rows = self.rows(sql, *values)
        if len(rows) != 1:
            raise SourceError(f"{self.connection}: wanted one row of {sql!r}, found {len(rows)}")
        return rows[0]

    def named_row(self, sql: str) -> dict[str, Any]:
        """The first row by column name, {} without rows: for SHOW statements, whose columns vary by version."""
        with self.translated(), self.raw.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(sql)
            return dict(cursor.fetchone() or {})

    def variable(self, name: str) -> str | None:
        """The text of a global system variable, or None where the server does not know it."""
        rows = self.rows("SHOW GLOBAL VARIABLES WHERE variable_name = %s", name)
        return str(rows[0][1]) if rows else None

    @property
    def version_number(self) -> tuple[int, int]:
        """Major and minor version, to compare."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def server_of(session: Session) -> Server:
    """What a statement's meaning depends on besides its session."""
    numbers = [int(part) for part in session.version.split("-")[0].split(".")[:3]]
    return Server(
        Flavour.MARIADB if session.is_mariadb else Flavour.MYSQL,
        (numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0),
        int(session.variable("lower_case_table_names") or 0),
        str(session.variable("collation_server")),
    )


@contextmanager
def translated(connection: MysqlConnection, ours: Translation | None = None) -> Iterator[None]:
    """Turn PyMySQL's errors into ours, with the server's own words; ``ours`` makes others of them than a source's."""
    try:
        yield
    except (pymysql.MySQLError, OSError) as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        words = str(error.args[1]) if len(error.args) > 1 else str(error)
        raise (ours or _of_source)(connection, error, code, words) from error
    except RuntimeError as error:
        if "LOAD_LOCAL" not in str(error):
            raise
        raise (ours or _of_source)(connection, error, CR.CR_MALFORMED_PACKET, _ASKS_FOR_A_FILE) from error


def _of_source(connection: MysqlConnection, error: Exception, code: int, words: str) -> ChangefeedError:
    if code in _REFUSED:
        return SourceError(
            f"MySQL at {connection.host}:{connection.port} refuses user {connection.user!r}: {words}. Check user and "
            "password of the connection, and that it has REPLICATION SLAVE, REPLICATION CLIENT and SELECT."
        )
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLError) and cause.reason in _NO_COMMON_TLS:
        return SourceError(
            f"MySQL at {connection.host}:{connection.port} offers TLS, and no version of it that is accepted here, "
            f"which is 1.2 or newer ({cause.reason}): so do MySQL's own builds of 5.7 before 5.7.28, which end with "
            "TLS 1.1. Nothing was read. Upgrade the server, or let the connection do without TLS by ssl_mode=disabled."
        )
    if code in _UNREACHABLE or code in _BUSY or isinstance(error, OSError):
        return SourceUnavailableError(
            f"MySQL at {connection.host}:{connection.port} cannot be reached: {words}. The run can be tried again when "
            "the server answers; check host, port and firewall if it never did."
        )
    kind = NoSuchTableError if code in _NO_TABLE else SourceError
    return kind(f"MySQL at {connection.host}:{connection.port} answered with error {code}: {words}")
