"""The connection to a schema registry: URL, login and TLS, parsed from a URI."""

from __future__ import annotations

import base64
import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from changefeed.errors import SettingsError
from changefeed.model.connection import RUN_ANSWER_LIMITS, AnswerLimits, check_values, options_of, quote_option
from changefeed.model.tls import present_certificate, trusting_context

_OPTIONS = frozenset({"ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "ssl_verify"})
_FORM = "expected http://user:password@host:port or https://…"


@dataclass(frozen=True)
class RegistryConnection:
    """The address, login and TLS options of a registry. Its repr and its messages have neither password nor TLS key.

    ``url`` has no login, and no slash at its end. ``options`` may have ssl_ca (the authorities), ssl_cert and
    ssl_key (the client's certificate and key), each the path of a PEM file or PEM text, ssl_key_password, and
    ssl_verify (`false` trusts any certificate).
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    answer_limits: AnswerLimits = RUN_ANSWER_LIMITS

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

    @property
    def authorization(self) -> str | None:
        """The value of a request's Authorization header; None without a user."""
        if not self.user:
            return None
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

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
