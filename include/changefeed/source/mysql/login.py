"""How a connection to MySQL is opened, and to whom it sends its password. All of the package's are opened here.

A login as most servers want it (mysql_native_password, caching_sha2_password from the server's cache) shows that the
client knows the password, and not the password. What a server gets besides, it gets as MySQL's own client gives it:

- the password itself for caching_sha2_password and sha256_password, over TLS or under the server's RSA key: whoever
  only listens has nothing of it, and whoever answers in the server's place has it, unless ``ssl_ca`` is set;
- the password itself for a server that checks it elsewhere (LDAP, PAM) only where its certificate was verified;
- no file of this machine, whatever it asks for: LOAD DATA LOCAL is off.
"""

from __future__ import annotations

import ssl
import time
from typing import Any, ClassVar

import pymysql
from pymysql.constants import CR

from changefeed.model.connection import MysqlConnection, Patience
from changefeed.source.mysql.session_settings import session_statement


class _PasswordInClear:
    """Answers with the password as it is, where the server's certificate was verified."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, _request: Any) -> Any:
        """The server's answer. Raises OperationalError for a server that anybody may be."""
        if not _is_verified(self._connection):
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_ERR,
                "it asks for the password in clear (mysql_clear_password, dialog), and its certificate was not "
                "verified, or not for its host, so that anybody could ask who answers at its address. Nothing of the "
                "password was sent. Name the authority that signed the server's certificate in ssl_ca of the "
                "connection",
            )
        self._connection.write_packet(self._connection.password + b"\0")
        return self._connection._read_packet()


class _OldPassword:
    """Answers nothing: what a login of before MySQL 4.1 sends is enough to find a password that does."""

    def __init__(self, _connection: Any) -> None:
        pass

    def authenticate(self, _request: Any) -> Any:
        """Raises OperationalError."""
        raise pymysql.err.OperationalError(
            CR.CR_AUTH_PLUGIN_ERR,
            "it asks for a login by mysql_old_password, of before MySQL 4.1, which gives the password away. Nothing of "
            "the password was sent. Give the user another one: ALTER USER … IDENTIFIED VIA or WITH "
            "mysql_native_password, caching_sha2_password or ed25519",
        )


PASSWORD_PLUGINS = {
    "mysql_clear_password": _PasswordInClear,
    "dialog": _PasswordInClear,
    "mysql_old_password": _OldPassword,
}
"""For PyMySQL's ``auth_plugin_map``, wherever it opens a connection."""


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """PyMySQL's. Where no option asks for TLS it prefers TLS all the same, and verifies nothing; it loads the machine's
    CAs for that with each connection, which takes 25 ms of CPU, and here once in a process.

    An answer is bounded, in bytes and from its first byte to its last: PyMySQL reads as long as a server sends."""

    _preferred_tls: ClassVar[ssl.SSLContext | None] = None
    patience = Patience(answer_bytes=1 << 20)  # for the login
    _answer_bytes = 0
    _answer_until: float | None = None

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._answer_bytes, self._answer_until = 0, None
        super()._execute_command(command, sql)

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._answer_bytes += num_bytes
        if self._answer_bytes > self.patience.answer_bytes:
            raise self._lost(f"its answer is larger than {self.patience.answer_bytes:,} bytes")
        parts: list[bytes] = []
        while num_bytes:
            parts.append(self._some_bytes(num_bytes))
            num_bytes -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _some_bytes(self, most: int) -> bytes:
        """The next bytes, ``most`` or fewer."""
        try:
            part: bytes = self._rfile.read1(most)
        except OSError as error:
            raise self._lost(str(error)) from error
        except BaseException:
            self._force_close()
            raise
        if not part:
            raise self._lost("it closed the connection")
        now, seconds = time.monotonic(), 2 * self.patience.answer_seconds
        self._answer_until = self._answer_until or now + seconds
        if now > self._answer_until:
            raise self._lost(f"its answer takes more than {seconds} seconds from its first byte to its last")
        return part

    def _lost(self, why: str) -> pymysql.OperationalError:
        self._force_close()
        return pymysql.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({why})")

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[no-any-return]
        if _Connection._preferred_tls is None:
            _Connection._preferred_tls = super()._create_ssl_ctx(sslp)
        return _Connection._preferred_tls


def connect(connection: MysqlConnection) -> pymysql.Connection[Any]:
    """PyMySQL's connection with our timeouts and the TLS that the options ask for; raises PyMySQL's errors."""
    patience = connection.patience
    connect_seconds = int(connection.options.get("connect_timeout_seconds", patience.connect_seconds))
    context = _tls(connection)
    try:
        connected = _Connection(
            host=connection.host,
            port=connection.port,
            user=connection.user,
            password=connection.password,
            charset="utf8mb4",
            # PyMySQL believes MySQL's greeting, which says that autocommit is on where `SET GLOBAL autocommit = 0` is
            # in force. Without it all reads of a session are of one snapshot: information_schema would stay as it was.
            autocommit=True,
            init_command=session_statement(),
            connect_timeout=connect_seconds,
            read_timeout=connect_seconds,  # for the greeting: PyMySQL's connect_timeout ends when the port is open
            ssl=context,
            ssl_disabled=connection.options.get("ssl_mode", "").lower() == "disabled",
            local_infile=False,
            auth_plugin_map=PASSWORD_PLUGINS,
        )
    except pymysql.err.OperationalError as error:
        if of_tls := _of_tls(error):
            raise of_tls from error
        raise
    if context is not None and not isinstance(connected._sock, ssl.SSLSocket):
        connected.close()
        raise _without_tls()
    connected._read_timeout, connected.patience = patience.answer_seconds, patience
    return connected


def _tls(connection: MysqlConnection) -> ssl.SSLContext | None:
    """How to verify the server; None where the options ask for no TLS."""
    options = connection.options
    if not any(name.startswith("ssl_") and name != "ssl_mode" for name in options):
        return None
    context = ssl.create_default_context(cafile=options.get("ssl_ca"))
    verify = options.get("ssl_verify", "true")
    context.check_hostname = verify not in ("ca", "false")
    if verify == "false":
        context.verify_mode = ssl.CERT_NONE
    if cert := options.get("ssl_cert"):
        context.load_cert_chain(cert, options.get("ssl_key"))
    return context


def _is_verified(connection: Any) -> bool:
    """Whether the server proved to be whom an authority knows: its own word for it counts nothing. Nor does a
    certificate for another name, but in ours, where it is from the one authority of ssl_ca: of others it is not known
    which they take."""
    channel = connection._sock
    if not isinstance(channel, ssl.SSLSocket) or channel.context.verify_mode != ssl.CERT_REQUIRED:
        return False
    return channel.context.check_hostname or isinstance(connection, _Connection)


def _of_tls(error: pymysql.err.OperationalError) -> pymysql.err.OperationalError | None:
    """What to say of an error where TLS failed, so that nothing was sent yet; None of any other."""
    if error.args[:1] == (CR.CR_SSL_CONNECTION_ERROR,):
        return _without_tls()
    cause = getattr(error, "original_exception", None)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return None
    return pymysql.err.OperationalError(
        CR.CR_SSL_CONNECTION_ERROR,
        f"its certificate is not accepted: {cause.verify_message}. Either another server answers there, or the "
        "authority that signed the certificate is not the one in ssl_ca, or the certificate is for another name than "
        "the connection's host. Nothing was sent. Correct ssl_ca or the host; a certificate that MySQL made for itself "
        "is for no name, and with ssl_verify=ca the authority alone counts, which is then that server's own ca.pem",
    )


def _without_tls() -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(
        CR.CR_SSL_CONNECTION_ERROR,
        "options of the connection ask for TLS, and the server, or who answers in its place, offers none. Nothing was "
        "sent. Give the server a certificate, or take the options ssl_… out of the connection if it shall have none",
    )
