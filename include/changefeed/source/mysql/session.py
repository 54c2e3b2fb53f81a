"""A connection to the source for queries; it detects MariaDB and raises changefeed's errors."""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from typing import Any, Self

import pymysql
from pymysql.constants import CR, ER

from changefeed.ddl.session import Flavour, Server
from changefeed.errors import (
    ChangefeedError,
    NoSuchTableError,
    SourceError,
    SourceLoginError,
    SourceUnavailableError,
)
from changefeed.kept_clients import kept_client
from changefeed.model.connection import MysqlConnection
from changefeed.model.file_identity import FileIdentity
from changefeed.source.mysql.login import connect

_REFUSED = {ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR, 1227, 1142}
_NO_TABLE = {ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR}
UNREACHABLE = frozenset(
    {CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONNECTION_ERROR, ER.SERVER_SHUTDOWN}
    | {3032}  # offline_mode=ON
)
"""The codes of an error if no server answers, or it lets no user in."""
_FULL = {ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.USER_LIMIT_REACHED}
_ENDED = {ER.QUERY_INTERRUPTED, 1927, 3169, 4031}
"""The statement or session was killed, or the session was inactive; 1927 is MariaDB's."""
BUSY = frozenset({ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK} | _FULL | _ENDED)
"""The other codes of an error that may pass."""

_NO_COMMON_TLS = {
    "WRONG_VERSION_NUMBER",
    "UNSUPPORTED_PROTOCOL",
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "UNSAFE_LEGACY_RENEGOTIATION_DISABLED",
}
"""OpenSSL's reasons for a failure if the server supports only versions of TLS that are not accepted here."""

_ASKS_FOR_A_FILE = (
    "it asks for a file of this machine (LOAD DATA LOCAL), for which no server has a reason. Nothing was sent. Find "
    "out who answers at that address"
)

SESSION_SECONDS = 10.0
"""How long a session is used by a process that keeps its clients. Later queries find another server behind its
address."""

Row = tuple[Any, ...]
Translation = Callable[[MysqlConnection, Exception, int, str], ChangefeedError]
"""Returns changefeed's error for an error of PyMySQL, its code (0 without a code) and its text."""


class Session:
    """One connection to the source; use it as a context manager.

    ``file_identities`` are those that `binlogs.file_identity_once` has read.

    Raises SourceError if the server refuses the user, the password or a privilege, and SourceUnavailableError if it
    cannot be reached, closes the connection, or refuses a password that the next login renews.
    """

    def __init__(self, connection: MysqlConnection) -> None:
        self.connection = connection
        with self.translate_errors():
            self.raw = connect(connection)
        try:
            (self.version,) = self.row("SELECT @@version")
        except ChangefeedError:
            self.raw.close()
            raise
        self.is_mariadb = "mariadb" in self.version.lower()
        self.file_identities: dict[tuple[str, str], FileIdentity] = {}

    def again(self) -> Session:
        """The same connection for another use, which knows nothing of this one."""
        session = copy(self)
        session.file_identities = {}
        return session

    def is_well(self) -> bool:
        """Whether the server has not closed the connection; see `kept_clients`."""
        if not self.raw.open:
            return False
        poll = select.poll()
        poll.register(self.raw._sock, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise SourceError or SourceUnavailableError instead of PyMySQL's errors."""
        return translate_errors(self.connection)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """All rows of a query; ``values`` replace its %s, escaped by the client."""
        with self.translate_errors(), self.raw.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def results(self, sql: str) -> list[list[Row]]:
        """The rows of each statement of a compound statement."""
        with self.translate_errors(), self.raw.cursor() as cursor:
            cursor.execute(sql)
            results = [list(cursor.fetchall())]
            while cursor.nextset():
                results.append(list(cursor.fetchall()))
            return results

    def row(self, sql: str, *values: object) -> Row:
        """The only row of a query; raises SourceError if there are none or several."""
        rows = self.rows(sql, *values)
        if len(rows) != 1:
            raise SourceError(f"{self.connection}: expected one row of {sql!r}, found {len(rows)}")
        return rows[0]

    def named_row(self, sql: str) -> dict[str, Any]:
        """The first row by column name; {} without rows. For SHOW statements, whose columns depend on the version."""
        with self.translate_errors(), self.raw.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(sql)
            return dict(cursor.fetchone() or {})

    def variable(self, name: str) -> str | None:
        """The text of a global system variable, or None if the server does not know it."""
        return self.variables(name).get(name)

    def variables(self, *names: str) -> dict[str, str]:
        """The texts of the global system variables ``names`` that the server knows; one statement, which takes as long
        as for one variable."""
        rows = self.rows("SHOW GLOBAL VARIABLES WHERE variable_name IN %s", names)
        return {str(name): str(text) for name, text in rows}

    @property
    def version_number(self) -> tuple[int, int]:
        """Major and minor version of the server."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


@contextmanager
def kept_session(connection: MysqlConnection) -> Iterator[Session]:
    """A session for queries: a new one, or in a process that keeps its clients one of the last SESSION_SECONDS.

    The block must leave the session as it was: without a transaction, and with its settings. Raises what `Session`
    raises.
    """
    with kept_client(connection, "queries", lambda: Session(connection), SESSION_SECONDS) as session:
        yield session.again()


def server_of(session: Session) -> Server:
    """The properties of the server on which the meaning of statements depends."""
    numbers = [int(part) for part in session.version.split("-")[0].split(".")[:3]]
    return Server(
        Flavour.MARIADB if session.is_mariadb else Flavour.MYSQL,
        (numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0),
        int(session.variable("lower_case_table_names") or 0),
        str(session.variable("collation_server")),
    )


@contextmanager
def translate_errors(connection: MysqlConnection, ours: Translation | None = None) -> Iterator[None]:
    """Raise changefeed's errors, with the server's own text, instead of PyMySQL's errors.

    The function ``ours`` chooses the error; without it the errors are those of a source."""
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


def is_unreachable(error: SourceUnavailableError) -> bool:
    """Whether no server answered, or it closed the connection; False for a server that is busy or refuses a
    password."""
    cause = error.__cause__
    if isinstance(cause, pymysql.MySQLError):
        return bool(cause.args) and cause.args[0] in UNREACHABLE
    return isinstance(cause, OSError)


def is_stale_password(connection: MysqlConnection, code: int) -> bool:
    """Whether a retry may log in: the server refused a password that is new for each login, and may know the next."""
    return code == ER.ACCESS_DENIED_ERROR and connection.password_source is not None


def _of_source(connection: MysqlConnection, error: Exception, code: int, words: str) -> ChangefeedError:
    if is_stale_password(connection, code):
        return SourceUnavailableError(
            f"MySQL at {connection.host}:{connection.port} refuses user {connection.user!r} with the password that "
            f"`passwords` of the site's file returned for this login: {words}. Run again: the next login gets another "
            "one. If it never succeeds, check the user, and what the command or function returns."
        )
    if code in _REFUSED:
        kind = SourceLoginError if code == ER.ACCESS_DENIED_ERROR else SourceError
        return kind(
            f"MySQL at {connection.host}:{connection.port} refuses user {connection.user!r}: {words}. Check user and "
            "password of the connection, and that it has REPLICATION SLAVE, REPLICATION CLIENT and SELECT."
        )
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLError) and cause.reason in _NO_COMMON_TLS:
        return SourceError(
            f"MySQL at {connection.host}:{connection.port} offers TLS, but no accepted version of it, "
            f"1.2 or newer ({cause.reason}): so do MySQL's own builds of 5.7 before 5.7.28, which end with "
            "TLS 1.1. Nothing was read. Upgrade the server, or disable TLS for the connection by ssl_mode=disabled."
        )
    if code in BUSY:
        return SourceUnavailableError(
            f"MySQL at {connection.host}:{connection.port} cannot do it now: {words} ({code}). Run again. If it stays "
            "so, check the limits of connections of the server and of the user, and what ends its sessions."
        )
    if code in UNREACHABLE or isinstance(error, OSError | pymysql.InterfaceError):
        return SourceUnavailableError(
            f"MySQL at {connection.host}:{connection.port} cannot be reached: {words or 'the connection was closed'}. "
            "Run again when the server answers; check host, port and firewall if it never did."
        )
    kind = NoSuchTableError if code in _NO_TABLE else SourceError
    return kind(f"MySQL at {connection.host}:{connection.port} answered with error {code}: {words}")
