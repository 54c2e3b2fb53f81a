"""Connections to servers: each connection id has a URI in Airflow's form.

Inside Airflow, Airflow looks up the id. Outside Airflow, changefeed reads the environment variable
``AIRFLOW_CONN_<ID>``. Airflow reads this variable, too, so one setting works for both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from changefeed.errors import SettingsError
from changefeed.model.password_source import PasswordSource

_BROKER = re.compile(r"([A-Za-z_]+://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_HOST_LIST = re.compile(r",|%2c", re.IGNORECASE)
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]{1,5})?")
_URI = re.compile(r"(?P<scheme>[a-z+]+://)(?P<user>(?:[^@/?#]*@)?)(?P<hosts>[^@/?#]*)(?P<rest>[^\s]*)")
_OPTION = re.compile(r"[a-z][a-z._]{1,60}")
_DOTTED = re.compile(r"[a-z]+(\.[a-z]+)+=")

ConnectionLookup = Callable[[str], str]
"""Returns the URI of a connection id. Raises SettingsError for an unknown id."""


def variable_of(connection_id: str) -> str:
    """Name of the environment variable that holds a connection."""
    return f"AIRFLOW_CONN_{connection_id.upper()}"


def from_environment(connection_id: str) -> str:
    """The URI of a connection from the environment. If the variable is not set, raises SettingsError with its name."""
    uri = os.environ.get(variable_of(connection_id))
    if not uri:
        raise SettingsError(
            f"connection {connection_id!r} is required, and environment variable {variable_of(connection_id)} is not "
            "set: set it to a URI such as mysql://user:password@host:3306 or kafka://host:9092"
        )
    return uri


@dataclass(frozen=True)
class AnswerLimits:
    """Limits for the answers of a server: seconds to connect, seconds of an answer, and bytes of an answer.

    From its first to its last byte an answer may take twice ``answer_seconds``, so that a server that sends single
    bytes also times out.
    """

    connect_seconds: int = 10
    answer_seconds: int = 600
    answer_bytes: int = 1 << 30


RUN_ANSWER_LIMITS = AnswerLimits()
"""The limits of runs and commands; pages have shorter ones."""


_MYSQL_OPTIONS = {"ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify", "connect_timeout_seconds"}


@dataclass(frozen=True)
class MysqlConnection:
    """A MySQL or MariaDB server. Its repr has neither the password nor a TLS key."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    answer_limits: AnswerLimits = RUN_ANSWER_LIMITS
    password_source: PasswordSource | None = None
    """If set, returns the password of each login in place of ``password``."""

    @classmethod
    def from_uri(cls, uri: str, answer_limits: AnswerLimits = RUN_ANSWER_LIMITS) -> MysqlConnection:
        """The connection of a URI like ``mysql://user:password@host:port/?ssl_ca=…``.

        | option | value |
        |---|---|
        | ssl_mode | `preferred`: use TLS if the server has it, and verify nothing; `disabled`: no TLS |
        | ssl_ca, ssl_cert, ssl_key | the path of a PEM file, or PEM text |
        | ssl_verify | `true`; `ca` (requires ssl_ca): accept a certificate for any name; `false`: verify nothing |
        | connect_timeout_seconds | takes precedence over ``answer_limits`` |

        Every ssl_… option except ssl_mode makes TLS required. Raises SettingsError for another scheme, for an unknown
        option and for a missing host. No message has the password.
        """
        parts = _split(uri, "mysql")
        if not parts.hostname:
            raise SettingsError("a MySQL connection has no host: expected mysql://user:password@host:3306")
        options = options_of(parts.query)
        unknown = sorted(set(options) - _MYSQL_OPTIONS)
        if unknown:
            raise SettingsError(f"unknown option {quote_option(unknown[0])} of MySQL connection to {parts.hostname!r}")
        check_values(options, f"MySQL connection to {parts.hostname!r}")
        mode = options.get("ssl_mode", "preferred").lower()
        if mode not in ("preferred", "disabled"):
            raise SettingsError(
                f"option 'ssl_mode' of MySQL connection to {parts.hostname!r} is {quote_option(mode)}: expected "
                "'preferred' or 'disabled'; with ssl_ca, or ssl_verify=true, TLS is required and the server verified"
            )
        if mode == "disabled" and (asked := sorted(name for name in options if name.startswith("ssl_")))[1:]:
            raise SettingsError(
                f"MySQL connection to {parts.hostname!r} has ssl_mode=disabled, and {asked[0]!r}, which asks for TLS: "
                "leave out one of them"
            )
        if options.get("ssl_verify") == "ca" and "ssl_ca" not in options:
            raise SettingsError(
                f"MySQL connection to {parts.hostname!r} has ssl_verify=ca, which takes a certificate for any name, "
                "without ssl_ca: all authorities that the machine knows would count, and anybody gets a certificate "
                "from those. Name the authority in ssl_ca"
            )
        if not re.fullmatch("[0-9]{1,6}", options.get("connect_timeout_seconds", "1")):
            raise SettingsError(
                f"option 'connect_timeout_seconds' of MySQL connection to {parts.hostname!r} is no whole number"
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.hostname, parts.port or 3306, user, password, options, answer_limits)

    @classmethod
    def all_from_uri(cls, uri: str, answer_limits: AnswerLimits = RUN_ANSWER_LIMITS) -> tuple[MysqlConnection, ...]:
        """The connections of a URI like ``mysql://user:password@host,host:port/?…``, one for each host, in its order.

        A host without a port has that of the last host. Raises what `from_uri` raises.
        """
        try:
            parts = _split_hosts(uri)
        except ValueError:
            raise _unreadable("mysql") from None
        user, at, hosts = parts.netloc.rpartition("@")
        addresses = _HOST_LIST.split(hosts)
        if not addresses[1:]:
            return (cls.from_uri(uri, answer_limits),)
        matches = [match for address in addresses if (match := _ADDRESS.fullmatch(address))]
        if len(matches) < len(addresses):
            raise _unreadable("mysql")
        port = matches[-1]["port"] or ""
        netlocs = [f"{user}{at}{match['host']}{match['port'] or port}" for match in matches]
        return tuple(cls.from_uri(parts._replace(netloc=netloc).geturl(), answer_limits) for netloc in netlocs)

    def current_password(self) -> str:
        """The password for a login now. Raises what `PasswordSource.password` raises."""
        if self.password_source is None:
            return self.password
        return self.password_source.password(self.host, self.port, self.user)

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


def kafka_parts(uri: str) -> tuple[str, dict[str, str]]:
    """Bootstrap servers and librdkafka options of a URI like ``kafka://host:port,host:port/?sasl.username=…``.

    Raises SettingsError for another scheme, for a missing broker, and for a user or a password before the brokers.
    Kafka uses a user and a password only in SASL, which also needs a mechanism.
    """
    parts = _split(uri, "kafka")
    options = {name: value for name, value in options_of(parts.query).items() if name != "__extra__"}
    if odd := [name for name in options if not _OPTION.fullmatch(name)]:
        raise SettingsError(
            f"unknown option {quote_option(odd[0])} of a Kafka connection: they are named as librdkafka's"
        )
    check_values(options, "a Kafka connection")
    if "@" in unquote(parts.netloc):
        raise SettingsError(
            "a Kafka connection has a user or a password before its brokers (login and password of Airflow's), where "
            "nothing would use them: write them as options, security.protocol=SASL_SSL&sasl.mechanism=SCRAM-SHA-512&"
            "sasl.username=…&sasl.password=…, or leave them out where the brokers ask for none"
        )
    bootstrap = parts.netloc or options.pop("bootstrap.servers", "")
    if not bootstrap:
        raise SettingsError("a Kafka connection has no broker: expected kafka://host:9092")
    if not all(_BROKER.fullmatch(broker.strip()) for broker in unquote(bootstrap).split(",")):
        raise SettingsError(
            "the brokers of a Kafka connection cannot be read: expected kafka://host:9092,host:9092. Its user and "
            "its password are options, sasl.username and sasl.password"
        )
    return unquote(bootstrap), options


def options_of(query: str) -> dict[str, str]:
    """The options of a URI, also those without a value."""
    return dict(parse_qsl(query, keep_blank_values=True))


def check_values(options: Mapping[str, str], of: str) -> None:
    """Raises SettingsError for an option without a value. If `ssl_ca=` were ignored, TLS would not be required."""
    if empty := [name for name, value in options.items() if not value]:
        raise SettingsError(
            f"option {quote_option(empty[0])} of {of} has no value: give it one, or leave it out for its default"
        )


def password_of(uri: str, connection_id: str) -> str:
    """The password of a connection of any type.

    A connection like `generic://:SECRET@` stores a secret that belongs to no server. Raises SettingsError if the
    connection has no password. No message has any part of the URI.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if not parts.password or parts.fragment or "@" in parts.path:
        raise SettingsError(
            f"connection {connection_id!r} has no password, which is required as a secret: fill in its password, or as "
            "a URI write generic://:SECRET@ with each of the characters / ? # @ : [ ] % as % and two digits"
        )
    return unquote(parts.password)


def _split_hosts(uri: str) -> SplitResult:
    """As `urlsplit`, also of a list of hosts with IPv6 addresses: some releases of Python refuse one after another host
    (CVE-2025-0938)."""
    try:
        return urlsplit(uri)
    except ValueError:
        found = _URI.fullmatch(uri)
        if found is None or not all(map(_ADDRESS.fullmatch, _HOST_LIST.split(found["hosts"]))):
            raise
        return urlsplit(found["scheme"] + found["rest"])._replace(netloc=found["user"] + found["hosts"])


def _split(uri: str, scheme: str) -> SplitResult:
    """The parts of a URI. No message repeats them: in an invalid URI the host may be a part of the password."""
    try:
        parts = _split_hosts(uri)
        if scheme == "mysql" and _HOST_LIST.search(parts.netloc.rpartition("@")[2]):
            raise SettingsError(
                "a MySQL connection names several hosts: expected one, mysql://user:password@host:3306. Only the "
                "source of a pipeline may have several, which are tried in order. A follower is one server"
            )
        _ = parts.port if scheme == "mysql" else None
    except ValueError:
        raise _unreadable(scheme) from None
    if parts.scheme.partition("+")[0] != scheme:
        shown = f"found scheme {parts.scheme!r}" if parts.netloc else "found none with a scheme and //"
        raise SettingsError(f"expected a connection of the form {scheme}://…, {shown}")
    # An @ after the host follows the password: a / ? or # in the password ended the host too early.
    if parts.fragment or "@" in parts.path or ("@" in parts.query and not _is_query(parts.query, scheme)):
        raise _unreadable(scheme)
    return parts


def _is_query(text: str, scheme: str) -> bool:
    """Whether the text after ? is a query of librdkafka options, whose names have dots."""
    return scheme == "kafka" and all(_DOTTED.match(option) for option in text.split("&"))


def quote_option(name: str) -> str:
    """The name of an option, quoted for a message. A text that does not look like a name may be part of a password."""
    return repr(name) if _OPTION.fullmatch(name) else "(not shown, as it may be part of a password)"


def _unreadable(scheme: str) -> SettingsError:
    return SettingsError(
        f"the URI of a {scheme} connection cannot be read: expected {scheme}://user:password@host:port. In a user or a "
        "password each of the characters / ? # @ : [ ] % is written as % and two digits, as quote(…, safe='') of "
        "Python's urllib.parse does"
    )
