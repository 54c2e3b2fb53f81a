"""How to reach a schema registry: its URL, login and TLS, out of a connection's URI."""

from __future__ import annotations

import base64
import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from changefeed.errors import SettingsError
from changefeed.model.connection import OF_A_RUN, Patience, check_values, options_of, shown_option

_OPTIONS = frozenset({"ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "ssl_verify"})
_FORM = "wanted http://user:password@host:port or https://…"


@dataclass(frozen=True)
class RegistryConnection:
    """A registry. Neither password nor TLS key shows in its repr, and no message has them.

    ``url`` has no login in it, and no slash at its end. ``options``: ssl_ca (a file of certificates), ssl_cert and
    ssl_key (the client's, in PEM), ssl_key_password, ssl_verify (`false` trusts any certificate).
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    patience: Patience = OF_A_RUN

    @classmethod
    def from_uri(cls, uri: str, patience: Patience = OF_A_RUN) -> RegistryConnection:
        """Read ``https://user:password@host:port/path?ssl_ca=…``.

        Where Airflow has a connection of type HTTP its schema, the path here, is the protocol: `http://host:8081/https`.
        Raises SettingsError for another scheme or option, and without a host.
        """
        parts = _split(uri)
        scheme, path = parts.scheme, parts.path.strip("/")
        if path in ("http", "https"):
            scheme, path = path, ""
        options = options_of(parts.query)
        if unknown := sorted(set(options) - _OPTIONS):
            raise SettingsError(
                f"unknown option {shown_option(unknown[0])} of the schema registry at {parts.hostname!r}: wanted "
                f"{', '.join(sorted(_OPTIONS))}"
            )
        check_values(options, f"the schema registry at {parts.hostname!r}")
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        url = f"{scheme}://{host}{port}" + (f"/{path}" if path else "")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(url, user, password, tuple(sorted(options.items())), patience)

    def __str__(self) -> str:
        return self.url

    @property
    def authorization(self) -> str | None:
        """The value of a request's Authorization header; None without a user."""
        if not self.user:
            return None
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def tls(self) -> ssl.SSLContext | None:
        """What a connection is secured with; None for plain HTTP. Raises SettingsError for files that do not do."""
        if not self.url.startswith("https:"):
            return None
        options = dict(self.options)
        try:
            context = ssl.create_default_context(cafile=options.get("ssl_ca"))
            if "ssl_cert" in options:
                context.load_cert_chain(
                    options["ssl_cert"], options.get("ssl_key"), options.get("ssl_key_password", "").encode()
                )
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"the certificates of the schema registry at {self.url} cannot be read ({error}): wanted PEM files "
                "that exist where the task runs, in ssl_ca, ssl_cert and ssl_key, and ssl_key_password for a locked key"
            ) from None
        if options.get("ssl_verify", "true").lower() in ("false", "0", "no"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _split(uri: str) -> SplitResult:
    """The parts of a URI. No message repeats any of it: what stands where a host should be may be half a password."""
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
