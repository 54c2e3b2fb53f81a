"""A connection to the source for queries, which knows MySQL from MariaDB and raises our errors."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Self

import pymysql
from pymysql.constants import CR, ER

from changefeed.errors import ChangefeedError, SourceError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection

_REFUSED = {ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR, 1227, 1142}
_UNREACHABLE = {CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONNECTION_ERROR}
_BUSY = {ER.CON_COUNT_ERROR, ER.SERVER_SHUTDOWN, ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK}

_NO_COMMON_TLS = {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}
"""OpenSSL's reasons where the server has only versions of TLS that are not accepted here."""

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


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """PyMySQL's. Where no option asks for TLS it prefers TLS all the same, and verifies nothing; it loads the machine's
    CAs for that with each connection, which takes 25 ms of CPU, and here once in a process."""

    _preferred_tls: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[no-any-return]
        if _Connection._preferred_tls is None:
            _Connection._preferred_tls = super()._create_ssl_ctx(sslp)
        return _Connection._preferred_tls


_SESSION = "SET autocommit = 1 /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
"""A generated invisible primary key is in the binlog, whether or not the server shows it to those who do not ask.
MariaDB skips comments of MySQL 8.

https://dev.mysql.com/doc/refman/9.7/en/create-table-gipks.html
"""


def connect(connection: MysqlConnection) -> pymysql.Connection[Any]:
    """PyMySQL's connection with our timeouts and the TLS that the options ask for."""
    patience = connection.patience
    connect_seconds = int(connection.options.get("connect_timeout_seconds", patience.connect_seconds))
    connected = _Connection(
        host=connection.host,
        port=connection.port,
        user=connection.user,
        password=connection.password,
        charset="utf8mb4",
        # PyMySQL believes MySQL's greeting, which says that autocommit is on where `SET GLOBAL autocommit = 0` is in
        # force. Without it all reads of a session are of one snapshot: information_schema would stay as it was.
        autocommit=True,
        init_command=_SESSION,
        connect_timeout=connect_seconds,
        read_timeout=connect_seconds,  # for the greeting: PyMySQL's connect_timeout ends when the port is open
        ssl=_tls(connection),
        ssl_disabled=connection.options.get("ssl_mode", "").lower() == "disabled",
    )
    connected._read_timeout = patience.answer_seconds
    return connected


def _tls(connection: MysqlConnection) -> ssl.SSLContext | None:
    options = connection.options
    if not any(name.startswith("ssl_") and name != "ssl_mode" for name in options):
        return None
    context = ssl.create_default_context(cafile=options.get("ssl_ca"))
    if options.get("ssl_verify", "true") == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert := options.get("ssl_cert"):
        context.load_cert_chain(cert, options.get("ssl_key"))
    return context


@contextmanager
def translated(connection: MysqlConnection, ours: Translation | None = None) -> Iterator[None]:
    """Turn PyMySQL's errors into ours, with the server's own words; ``ours`` makes others of them than a source's."""
    try:
        yield
    except (pymysql.MySQLError, OSError) as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        words = str(error.args[1]) if len(error.args) > 1 else str(error)
        raise (ours or _of_source)(connection, error, code, words) from error


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
    return SourceError(f"MySQL at {connection.host}:{connection.port} answered with error {code}: {words}")
