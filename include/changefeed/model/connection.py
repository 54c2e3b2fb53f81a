"""Where the servers are: connections by id, as URIs in Airflow's own form.

Inside Airflow a connection id is looked up by Airflow; elsewhere it is read from the environment variable that
Airflow would read too, ``AIRFLOW_CONN_<ID>``, so that one setting serves both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from changefeed.errors import SettingsError

_BROKER = re.compile(r"([A-Za-z_]+://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_HOST_LIST = re.compile(r",|%2c", re.IGNORECASE)
_OPTION = re.compile(r"[a-z][a-z._]{1,60}")
_DOTTED = re.compile(r"[a-z]+(\.[a-z]+)+=")

ConnectionLookup = Callable[[str], str]
"""Gives the URI of a connection id. Raises SettingsError for an id that nobody has set."""


def variable_of(connection_id: str) -> str:
    """Name of the environment variable that holds a connection."""
    return f"AIRFLOW_CONN_{connection_id.upper()}"


def from_environment(connection_id: str) -> str:
    """The URI of a connection from the environment; raises SettingsError with the variable's name."""
    uri = os.environ.get(variable_of(connection_id))
    if not uri:
        raise SettingsError(
            f"connection {connection_id!r} is wanted, and environment variable {variable_of(connection_id)} is not "
            "set: set it to a URI such as mysql://user:password@host:3306 or kafka://host:9092"
        )
    return uri


@dataclass(frozen=True)
class Patience:
    """What is taken from a server: for how many seconds it may keep silent, when it is connected to and when it is
    asked something, and how large one answer may be. From its first byte to its last an answer may take twice as long
    as silence: who sends a byte now and then is silent, too."""

    connect_seconds: int = 10
    answer_seconds: int = 600
    answer_bytes: int = 1 << 30


OF_A_RUN = Patience()
"""Of whatever nobody waits for at a page."""


_MYSQL_OPTIONS = {"ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify", "connect_timeout_seconds"}


@dataclass(frozen=True)
class MysqlConnection:
    """A MySQL or MariaDB server. The password does not show in its repr."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    patience: Patience = OF_A_RUN

    @classmethod
    def from_uri(cls, uri: str, patience: Patience = OF_A_RUN) -> MysqlConnection:
        """Read ``mysql://user:password@host:port/?ssl_ca=…``.

        Options are ssl_mode (`preferred`, which takes TLS where the server has it and verifies nothing, or `disabled`),
        ssl_ca, ssl_cert, ssl_key, ssl_verify (`true`; `ca`, with ssl_ca: for any name; `false`: nothing) and
        connect_timeout_seconds, which wins over ``patience``. Each ssl_… but ssl_mode requires TLS.
        Raises SettingsError for another scheme or option, and without a host. No message has the password in it.
        """
        parts = _split(uri, "mysql")
        if not parts.hostname:
            raise SettingsError("a MySQL connection has no host: wanted mysql://user:password@host:3306")
        options = options_of(parts.query)
        unknown = sorted(set(options) - _MYSQL_OPTIONS)
        if unknown:
            raise SettingsError(f"unknown option {shown_option(unknown[0])} of MySQL connection to {parts.hostname!r}")
        check_values(options, f"MySQL connection to {parts.hostname!r}")
        mode = options.get("ssl_mode", "preferred").lower()
        if mode not in ("preferred", "disabled"):
            raise SettingsError(
                f"option 'ssl_mode' of MySQL connection to {parts.hostname!r} is {shown_option(mode)}: wanted "
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
                "from those. Name the authority's file in ssl_ca"
            )
        if not re.fullmatch("[0-9]{1,6}", options.get("connect_timeout_seconds", "1")):
            raise SettingsError(
                f"option 'connect_timeout_seconds' of MySQL connection to {parts.hostname!r} is no whole number"
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.hostname, parts.port or 3306, user, password, options, patience)

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


def kafka_parts(uri: str) -> tuple[str, dict[str, str]]:
    """Bootstrap servers and librdkafka options of ``kafka://host:port,host:port/?sasl.username=…``.

    Raises SettingsError for another scheme, without a broker, and for a user or a password before the brokers: Kafka
    asks for them in SASL, whose mechanism they do not say.
    """
    parts = _split(uri, "kafka")
    options = {name: value for name, value in options_of(parts.query).items() if name != "__extra__"}
    if odd := [name for name in options if not _OPTION.fullmatch(name)]:
        raise SettingsError(
            f"unknown option {shown_option(odd[0])} of a Kafka connection: they are named as librdkafka's"
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
        raise SettingsError("a Kafka connection has no broker: wanted kafka://host:9092")
    if not all(_BROKER.fullmatch(broker.strip()) for broker in unquote(bootstrap).split(",")):
        raise SettingsError(
            "the brokers of a Kafka connection cannot be read: wanted kafka://host:9092,host:9092. Its user and "
            "its password are options, sasl.username and sasl.password"
        )
    return unquote(bootstrap), options


def options_of(query: str) -> dict[str, str]:
    """The options of a URI, those without a value, too."""
    return dict(parse_qsl(query, keep_blank_values=True))


def check_values(options: Mapping[str, str], of: str) -> None:
    """Raises SettingsError for an option without a value. Taken for one that is not there it would ask for nothing:
    `ssl_ca=` for no TLS."""
    if empty := [name for name, value in options.items() if not value]:
        raise SettingsError(
            f"option {shown_option(empty[0])} of {of} has no value: give it one, or leave it out for its default"
        )


def password_of(uri: str, connection_id: str) -> str:
    """The password of a connection of whatever type, for secrets that belong to no server: `generic://:SECRET@`.

    Raises SettingsError where there is none. No message repeats any of the URI.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if not parts.password or parts.fragment or "@" in parts.path:
        raise SettingsError(
            f"connection {connection_id!r} has no password, which is wanted as a secret: fill in its password, or as "
            "a URI write generic://:SECRET@ with each of the characters / ? # @ : [ ] % as % and two digits"
        )
    return unquote(parts.password)


def _split(uri: str, scheme: str) -> SplitResult:
    """The parts of a URI. No message repeats any of it: what stands where a host should be may be half a password."""
    try:
        parts = urlsplit(uri)
        if scheme == "mysql" and _HOST_LIST.search(parts.netloc.rpartition("@")[2]):
            raise SettingsError(
                "a MySQL connection names several hosts: wanted one, mysql://user:password@host:3306. A pipeline reads "
                "the binlog of one server, and positions of another are other ones. Name the source itself, or an "
                "address that leads to it (DNS, a virtual address): after a failover the position is looked up anew"
            )
        _ = parts.port if scheme == "mysql" else None
    except ValueError:
        raise _unreadable(scheme) from None
    if parts.scheme.partition("+")[0] != scheme:
        shown = f"found scheme {parts.scheme!r}" if parts.netloc else "found none with a scheme and //"
        raise SettingsError(f"wanted a connection of the form {scheme}://…, {shown}")
    # An @ behind the host is one behind the password: a / ? or # in that ended the host too early.
    if parts.fragment or "@" in parts.path or ("@" in parts.query and not _is_query(parts.query, scheme)):
        raise _unreadable(scheme)
    return parts


def _is_query(text: str, scheme: str) -> bool:
    """Whether what follows a ? and has an @ is a query: of librdkafka's options, whose names have dots."""
    return scheme == "kafka" and all(_DOTTED.match(option) for option in text.split("&"))


def shown_option(name: str) -> str:
    """The name of an option as a message quotes it, where it looks like one: else it may be a piece of a password."""
    return repr(name) if _OPTION.fullmatch(name) else "(not shown, as it may be part of a password)"


def _unreadable(scheme: str) -> SettingsError:
    return SettingsError(
        f"the URI of a {scheme} connection cannot be read: wanted {scheme}://user:password@host:port. In a user or a "
        "password each of the characters / ? # @ : [ ] % is written as % and two digits, as quote(…, safe='') of "
        "Python's urllib.parse does"
    )
