"""The connection to a schema registry: URL, login and TLS, parsed from a URI."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit

from changefeed.errors import SettingsError
from changefeed.model.connection import RUN_ANSWER_LIMITS, AnswerLimits, check_values, options_of, quote_option
from changefeed.model.password_source import PasswordSource
from changefeed.model.tls import present_certificate, trusting_context
from changefeed.printable import printable

_RUN = 8
"""How many successive characters of the login no message may repeat."""
_SHOWN = 500
"""Limit of the registry's text in an error message, in characters."""
_OPTIONS = frozenset({"ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "ssl_verify"})
_FORM = "expected http://user:password@host:port or https://…"


@dataclass(frozen=True)
class RegistryConnection:
    """The address, login and TLS options of a registry. Its repr and its messages have neither password nor TLS key.

    ``url`` has no login, and no slash at its end. ``options`` may have ssl_ca (the authorities), ssl_cert and
    ssl_key (the client's certificate and key), each the path of a PEM file or PEM text, ssl_key_password, and
    ssl_verify (`false` trusts any certificate). ``password_source``, if any, returns the password of each request in
    place of ``password``; without a user it returns a bearer token.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    answer_limits: AnswerLimits = RUN_ANSWER_LIMITS
    password_source: PasswordSource | None = None

    @classmethod
    def from_uri(cls, uri: str, answer_limits: AnswerLimits = RUN_ANSWER_LIMITS) -> RegistryConnection:
        """The connection of a URI ``https://user:password@host:port/path?ssl_ca=…``.

        A path `/http` or `/https` sets the protocol, as in Airflow's connections of type HTTP:
        `http://host:8081/https`. Raises SettingsError for another scheme or option, and without a host.
        """
        parts = _split(uri)
        scheme, path = parts.scheme, parts.path.strip("/")
        if path in ("http", "https"):
            scheme, path = path, ""
        options = options_of(parts.query)
        if unknown := sorted(set(options) - _OPTIONS):
            raise SettingsError(
                f"unknown option {quote_option(unknown[0])} of the schema registry at {parts.hostname!r}: expected "
                f"{', '.join(sorted(_OPTIONS))}"
            )
        check_values(options, f"the schema registry at {parts.hostname!r}")
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        url = f"{scheme}://{host}{port}" + (f"/{path}" if path else "")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(url, user, password, tuple(sorted(options.items())), answer_limits)

    def __str__(self) -> str:
        return self.url

    def login(self) -> RegistryLogin:
        """The login of a request now. Raises what `PasswordSource.password` raises."""
        parts = urlsplit(self.url)
        password = self.password
        if self.password_source is not None:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            password = self.password_source.password(parts.hostname or "", port, self.user)
        if self.user:
            pair = base64.b64encode(f"{self.user}:{password}".encode()).decode()
            return RegistryLogin(password, f"Basic {pair}")
        return RegistryLogin(password, f"Bearer {password}" if self.password_source is not None else None)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for plain HTTP. Raises SettingsError for invalid certificates or keys."""
        if not self.url.startswith("https:"):
            return None
        options = dict(self.options)
        try:
            context = trusting_context(options.get("ssl_ca"))
            if "ssl_cert" in options:
                password = options.get("ssl_key_password", "")
                present_certificate(context, options["ssl_cert"], options.get("ssl_key"), password)
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"the certificates of the schema registry at {self.url} cannot be read ({error}): expected PEM files "
                "that exist where the task runs, or PEM text, in ssl_ca, ssl_cert and ssl_key, and ssl_key_password "
                "for a locked key"
            ) from None
        if options.get("ssl_verify", "true").lower() in ("false", "0", "no"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class RegistryLogin:
    """The login of one request: the password or token, and the value of the Authorization header, if any."""

    password: str = field(default="", repr=False)
    authorization: str | None = field(default=None, repr=False)

    def hide_in(self, text: str) -> str:
        """A registry's ``text`` for an error message: short, printable, and not shown if it repeats a part of the
        login, as a hostile registry could."""
        if any(part in text for part in self._parts()):
            return "(not shown: it repeats the login)"
        return printable(text[:_SHOWN])

    def _parts(self) -> Iterator[str]:
        """The parts that no message may repeat: substrings of `_RUN` characters, in the encodings of HTTP."""
        token = (self.authorization or "").partition(" ")[2]
        of_password = base64.b64encode(self.password.encode()).decode().rstrip("=")
        for secret in filter(None, (self.password, quote(self.password, safe=""), token, of_password)):
            yield from (secret[at : at + _RUN] for at in range(max(1, len(secret) - _RUN + 1)))


def _split(uri: str) -> SplitResult:
    """The parts of a URI. No error message quotes the URI, because the text in place of a host may be half of a
    password."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        raise _unreadable() from None
    if parts.scheme not in ("http", "https"):
        shown = f"found scheme {parts.scheme!r}" if parts.netloc else "found none with a scheme and //"
        raise SettingsError(f"{_FORM} for a schema registry, {shown}")
    if not parts.hostname or not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", parts.hostname):
        raise _unreadable()
    if parts.fragment or "@" in parts.path or "@" in parts.query:
        raise _unreadable()
    return parts


def _unreadable() -> SettingsError:
    return SettingsError(
        f"the URI of a schema registry cannot be read: {_FORM}. In a user or a password each of the characters "
        "/ ? # @ : [ ] % is written as % and two digits, as quote(…, safe='') of Python's urllib.parse does"
    )
