"""Opens all connections to MySQL, and decides which server gets the password.

Most logins (mysql_native_password, caching_sha2_password from the server's cache) prove that the client knows the
password without sending it. Otherwise the rules are those of MySQL's own client:

- caching_sha2_password and sha256_password send the password over TLS or under the server's RSA key: an eavesdropper
  cannot read it, but a server that impersonates the source can, unless ``ssl_ca`` is set;
- a server that checks the password elsewhere (LDAP, PAM) gets it only if its certificate was verified;
- no server gets a file of this machine: LOAD DATA LOCAL is off.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any, ClassVar

import pymysql
from pymysql.constants import CR

from changefeed.errors import SettingsError
from changefeed.model.connection import AnswerLimits, MysqlConnection
from changefeed.model.tls import present_certificate, trusting_context
from changefeed.source.mysql.session_settings import session_statement

SILENT_SECONDS = 30
"""Seconds without any packet of the server's machine after which the connection is lost."""
_TCP_OPTIONS = {
    "TCP_KEEPIDLE": SILENT_SECONDS // 2,
    "TCP_KEEPINTVL": SILENT_SECONDS // 6,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": SILENT_SECONDS * 1000,
}


class _PasswordInClear:
    """Sends the password as clear text, if the server's certificate was verified."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, _request: Any) -> Any:
        """Send the password, and return the server's answer. Raises OperationalError for an unverified server."""
        if not _is_verified(self._connection):
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_ERR,
                "it asks for the password in clear (mysql_clear_password, dialog), and its certificate was not "
                "verified, or not for its host, so that any server at its address could ask for it. Nothing of the "
                "password was sent. Name the authority that signed the server's certificate in ssl_ca of the "
                "connection",
            )
        self._connection.write_packet(self._connection.password + b"\0")
        return self._connection._read_packet()


class _OldPassword:
    """Refuses logins of the form before MySQL 4.1: from their message an eavesdropper can compute a valid password."""

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
"""The value of PyMySQL's ``auth_plugin_map`` for all connections."""


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """PyMySQL's connection with two changes: limits for an answer, and fewer loads of CAs.

    - PyMySQL reads as long as a server sends. Here an answer is limited in bytes, and in seconds from its first byte to
      its last.
    - Without TLS options PyMySQL prefers TLS without verification, and loads the machine's CAs for each connection,
      which takes 25 ms of CPU. Here they are loaded once in a process."""

    _preferred_tls: ClassVar[ssl.SSLContext | None] = None
    answer_limits = AnswerLimits(answer_bytes=1 << 20)  # for the login
    _answer_bytes = 0
    _answer_until: float | None = None

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._answer_bytes, self._answer_until = 0, None
        super()._execute_command(command, sql)

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._answer_bytes += num_bytes
        if self._answer_bytes > self.answer_limits.answer_bytes:
            raise self._lost_error(f"its answer is larger than {self.answer_limits.answer_bytes:,} bytes")
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
            raise self._lost_error(str(error)) from error
        except BaseException:
            self._force_close()
            raise
        if not part:
            raise self._lost_error("it closed the connection")
        now, seconds = time.monotonic(), 2 * self.answer_limits.answer_seconds
        self._answer_until = self._answer_until or now + seconds
        if now > self._answer_until:
            raise self._lost_error(f"its answer takes more than {seconds} seconds from its first byte to its last")
        return part

    def _lost_error(self, why: str) -> pymysql.OperationalError:
        self._force_close()
        return pymysql.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({why})")

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[no-any-return]
        if _Connection._preferred_tls is None:
            _Connection._preferred_tls = super()._create_ssl_ctx(sslp)
        return _Connection._preferred_tls


def connect(connection: MysqlConnection) -> pymysql.Connection[Any]:
    """An open PyMySQL connection with changefeed's timeouts and the TLS options.

    Raises PyMySQL's errors, SettingsError for certificates or a key that cannot be read, and what the connection's
    `PasswordSource` raises.
    """
    answer_limits = connection.answer_limits
    connect_seconds = int(connection.options.get("connect_timeout_seconds", answer_limits.connect_seconds))
    context, password = _tls(connection), connection.current_password()
    try:
        connected = _Connection(
            host=connection.host,
            port=connection.port,
            user=connection.user,
            password=password,
            charset="utf8mb4",
            # Set explicitly: MySQL's greeting says that autocommit is on, even after `SET GLOBAL autocommit = 0`, and
            # PyMySQL believes it. Without autocommit all reads of a session are of one snapshot, so the session would
            # not see changes of information_schema.
            autocommit=True,
            init_command=session_statement(),
            connect_timeout=connect_seconds,
            read_timeout=connect_seconds,  # for the greeting: PyMySQL's connect_timeout only covers opening the port
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
    _notice_dead_server(connected._sock)
    connected._read_timeout, connected.answer_limits = answer_limits.answer_seconds, answer_limits
    return connected


def _notice_dead_server(channel: socket.socket) -> None:
    """Let the kernel end the connection if the server's machine is silent for SILENT_SECONDS, as after a loss of power.

    A live machine answers the kernel's probes, however long the server works on a statement. Systems other than Linux
    have only some of these options.
    """
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS.items():
        if hasattr(socket, name):
            channel.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _tls(connection: MysqlConnection) -> ssl.SSLContext | None:
    """The SSL context with the TLS options of the connection; None without TLS options. Raises SettingsError for
    certificates or a key that cannot be read."""
    options = connection.options
    if not any(name.startswith("ssl_") and name != "ssl_mode" for name in options):
        return None
    try:
        context = trusting_context(options.get("ssl_ca"))
        if "ssl_cert" in options:
            present_certificate(context, options["ssl_cert"], options.get("ssl_key"))
    except (OSError, ValueError) as error:  # no message has the key
        raise SettingsError(
            f"ssl_ca, ssl_cert or ssl_key of the connection to MySQL at {connection.host}:{connection.port} cannot be "
            f"used: {error}. Nothing was sent. Expected the path of a PEM file on each machine on which tasks run, or "
            "PEM text, in a URI with each + as %2B and each line end as %0A; and a key without a password, of that "
            "certificate"
        ) from None
    verify = options.get("ssl_verify", "true")
    context.check_hostname = verify not in ("ca", "false")
    if verify == "false":
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_verified(connection: Any) -> bool:
    """Whether an authority verified the server. A self-signed certificate does not count.

    A certificate for another host name counts only if this module created the SSL context, which trusts only the
    authority of ssl_ca."""
    channel = connection._sock
    if not isinstance(channel, ssl.SSLSocket) or channel.context.verify_mode != ssl.CERT_REQUIRED:
        return False
    return channel.context.check_hostname or isinstance(connection, _Connection)


def _of_tls(error: pymysql.err.OperationalError) -> pymysql.err.OperationalError | None:
    """The error to raise if TLS failed, before any secret was sent; None for any other error."""
    if error.args[:1] == (CR.CR_SSL_CONNECTION_ERROR,):
        return _without_tls()
    cause = getattr(error, "original_exception", None)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return None
    return pymysql.err.OperationalError(
        CR.CR_SSL_CONNECTION_ERROR,
        f"its certificate is not accepted: {cause.verify_message}. Either another server answers there, or the "
        "authority that signed the certificate is not the one in ssl_ca, or the certificate is for another name than "
        "the connection's host. Nothing was sent. Correct ssl_ca or the host; MySQL's self-made certificate has no "
        "host name: use ssl_verify=ca, which checks the authority only, with that server's own ca.pem",
    )


def _without_tls() -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(
        CR.CR_SSL_CONNECTION_ERROR,
        "options of the connection ask for TLS, and the server, or another one at its address, offers none. Nothing "
        "was sent. Give the server a certificate, or remove the options ssl_… from the connection",
    )
