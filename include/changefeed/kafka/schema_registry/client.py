"""HTTP client of a schema registry, with a limited number of tries.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html, which Karapace and Apicurio's
`/apis/ccompat/v7` follow.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from urllib.parse import quote

import orjson
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from changefeed.errors import (
    CompatibilityError,
    RegistryError,
    RegistryUnavailableError,
    SettingsError,
    SourceUnavailableError,
)
from changefeed.kafka.schema_registry.connection import RegistryConnection, RegistryLogin

_TRIES = 4
_WAIT = wait_exponential(multiplier=0.25, max=4)
_LARGEST = 8 << 20
"""Limit of a response, in bytes."""
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_BUSY = frozenset({429, 500, 502, 503, 504})
_DENIED = frozenset({401, 403})
NOT_FOUND, CONFLICT, UNPROCESSABLE = 404, 409, 422
NO_LEVEL = "NONE"
"""The compatibility level that accepts any schema."""
LEVELS = frozenset(
    {NO_LEVEL, *(f"{level}{of_all}" for level in ("BACKWARD", "FORWARD", "FULL") for of_all in ("", "_TRANSITIVE"))}
)


class _Watch:
    """Closes the connections of a request after ``seconds``: a socket's timeout starts again with each byte.

    Use it as a context manager.
    """

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def plain_connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        """A connection that is closed at the timeout; a TLS handshake has one timeout in total."""
        return self._watch(http.client.HTTPConnection(host, **options))

    def tls_connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        """A TLS connection that is closed at the timeout, like a `plain_connection`."""
        return self._watch(http.client.HTTPSConnection(host, **options))

    def _watch(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        connect = connection.connect

        def connect_watched() -> None:
            connect()
            self._sockets.append(connection.sock)
            if self.is_over:
                self._end()

        connection.connect = connect_watched  # type: ignore[method-assign]
        return connection

    def error(self, seconds: float) -> OSError | None:
        """The timeout error, None before the timeout."""
        return TimeoutError(f"no complete answer within {seconds:g} seconds") if self.is_over else None

    def _end(self) -> None:
        self.is_over = True
        for each in self._sockets:
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # not TLS's own shutdown: another thread may be reading


class _Http(urllib.request.HTTPHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._watch.plain_connection, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, watch: _Watch, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._watch, self._tls = watch, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._watch.tls_connection, request, context=self._tls)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the login to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Answer:
    """The status and the JSON of a response."""

    status: int
    body: Any
    login: RegistryLogin

    @property
    def message(self) -> str:
        """The registry's error text for a message: short, printable, and without the login."""
        return self.login.hide_in(str(self.body.get("message", "") if isinstance(self.body, dict) else self.body))


@dataclass(frozen=True)
class Registry:
    """The registry at ``connection``; it connects at the first request.

    All methods raise RegistryUnavailableError if it does not answer after some tries, or refuses a password that is new
    for each request; RegistryError if it refuses another login or the request, SettingsError for certificates that
    cannot be read.
    """

    connection: RegistryConnection

    def id_of(self, subject: str, schema: str) -> int | None:
        """The id of ``schema`` under ``subject``; None if it is not registered there."""
        answer = self._ask("POST", f"subjects/{_quote(subject)}", {"schema": schema})
        return None if answer.status == NOT_FOUND else self._id(answer, subject)

    def register(self, subject: str, schema: str) -> int:
        """The id of ``schema`` under ``subject``; a new schema is registered.

        Raises CompatibilityError with the registry's text if it is not compatible with the subject.
        """
        answer = self._ask("POST", f"subjects/{_quote(subject)}/versions", {"schema": schema})
        if answer.status == CONFLICT:
            raise CompatibilityError(answer.message)
        return self._id(answer, subject)

    def level(self, subject: str) -> str:
        """The compatibility level of ``subject``: BACKWARD, FORWARD_TRANSITIVE, NONE and the like."""
        answer = self._ask("GET", f"config/{_quote(subject)}?defaultToGlobal=true")
        if answer.status == NOT_FOUND:  # registries without defaultToGlobal
            answer = self._ask("GET", "config")
        return self._level(answer, subject) or "BACKWARD"

    def own_level(self, subject: str) -> str | None:
        """The compatibility level that was set for ``subject``; None if the registry's default applies."""
        answer = self._ask("GET", f"config/{_quote(subject)}?defaultToGlobal=false")
        return None if answer.status == NOT_FOUND else self._level(answer, subject)

    def set_level(self, subject: str, level: str) -> None:
        """Set the compatibility level of ``subject``."""
        answer = self._ask("PUT", f"config/{_quote(subject)}", {"compatibility": level})
        self._body(answer, dict, f"compatibility {level} of subject {subject!r}")

    def delete_level(self, subject: str) -> None:
        """Delete the compatibility level of ``subject``, if it has one; then the registry's default applies."""
        answer = self._ask("DELETE", f"config/{_quote(subject)}")
        if answer.status != NOT_FOUND:
            self._body(answer, (dict, str), f"subject {subject!r} without a compatibility of its own")

    def schemas(self, subject: str, *, latest: bool) -> list[str]:
        """The schemas of ``subject``, oldest first, or only the ``latest``; [] if there is no such subject."""
        answer = self._ask("GET", f"subjects/{_quote(subject)}/versions")
        if answer.status == NOT_FOUND:
            return []
        versions = sorted(self._body(answer, list, f"the versions of subject {subject!r}"))
        return [self._schema(subject, version) for version in (versions[-1:] if latest else versions)]

    def schema(self, number: int) -> str | None:
        """The Avro schema whose id is ``number``; None for an unknown id and for another kind of schema."""
        answer = self._ask("GET", f"schemas/ids/{number}")
        if answer.status == NOT_FOUND:
            return None
        found = self._body(answer, dict, f"the schema with id {number}")
        return str(found["schema"]) if found.get("schemaType", "AVRO") == "AVRO" and "schema" in found else None

    def _level(self, answer: Answer, subject: str) -> str | None:
        found = self._body(answer, dict, f"the compatibility of subject {subject!r}")
        level = found.get("compatibilityLevel") or found.get("compatibility")
        return str(level).upper() if level else None

    def _schema(self, subject: str, version: int) -> str:
        answer = self._ask("GET", f"subjects/{_quote(subject)}/versions/{version}")
        return str(self._body(answer, dict, f"version {version} of subject {subject!r}")["schema"])

    def _id(self, answer: Answer, subject: str) -> int:
        found = self._body(answer, dict, f"the id of a schema of subject {subject!r}").get("id")
        if not isinstance(found, int) or not 0 <= found < 2**31:
            raise RegistryError(
                f"the schema registry at {self.connection} gave {answer.login.hide_in(str(found))!r} as the id of a "
                "schema"
            )
        return found

    def _body(self, answer: Answer, expected: type | tuple[type, ...], what: str) -> Any:
        if answer.status == http.HTTPStatus.OK and isinstance(answer.body, expected):
            return answer.body
        hint = ""
        if answer.status == UNPROCESSABLE:
            hint = " It does not take the schema: an older registry may know less of Avro than was registered before."
        raise RegistryError(
            f"the schema registry at {self.connection} was asked for {what}, and answered {answer.status}: "
            f"{answer.message!r}.{hint} Is the connection's URL that of a registry with Confluent's "
            "interface?"
        )

    def __getstate__(self) -> dict[str, RegistryConnection]:
        return {"connection": self.connection}

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return self.connection.tls()

    def _ask(self, method: str, path: str, body: object = None) -> Answer:
        tries = Retrying(
            retry=retry_if_exception_type(RegistryUnavailableError),
            stop=stop_after_attempt(_TRIES),
            wait=_WAIT,
            reraise=True,
        )
        return tries(self._once, method, path, body)

    def _once(self, method: str, path: str, body: object) -> Answer:
        headers = {"Accept": _ACCEPT}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        login = self._login()
        if login.authorization is not None:
            headers["Authorization"] = login.authorization
        data = None if body is None else orjson.dumps(body)
        request = urllib.request.Request(f"{self.connection.url}/{path}", data, headers, method=method)
        seconds = min(self.connection.answer_limits.answer_seconds, 30)
        tls = self._tls
        with _Watch(2 * seconds) as watch:
            opener = urllib.request.build_opener(_NoRedirects(), _Http(watch), _Https(watch, tls))
            try:
                with opener.open(request, timeout=seconds) as answer:
                    read = Answer(answer.status, _read(answer), login)
            except urllib.error.HTTPError as error:
                read = self._error_answer(error, login)
            except (OSError, http.client.HTTPException) as error:
                raise self._unavailable(watch.error(2 * seconds) or error, login) from None
            if error_of_time := watch.error(2 * seconds):
                raise self._unavailable(error_of_time, login)
            return read

    def _login(self) -> RegistryLogin:
        try:
            login = self.connection.login()
        except SourceUnavailableError as error:  # of the command or function that returns the password
            raise RegistryUnavailableError(str(error)) from None
        if login.authorization is not None and not login.authorization.isascii():  # http.client's error would show it
            raise RegistryUnavailableError(
                f"expected an ASCII token for the schema registry at {self.connection}, found other characters. "
                "Nothing was sent. Correct what the command or function in `passwords` of the site's file returns"
            )
        return login

    def _error_answer(self, error: urllib.error.HTTPError, login: RegistryLogin) -> Answer:
        answer = Answer(error.code, _read(error), login)
        if error.code in _DENIED and self.connection.password_source is not None:  # some answer 403 to an old token
            raise RegistryUnavailableError(
                f"the schema registry at {self.connection} refuses the passwords or tokens that `passwords` of the "
                f"site's file returned for {_TRIES} requests ({error.code}). Run again: the next request gets another "
                "one. If it never succeeds, check the user, its rights, and what the command or function returns"
            ) from None
        if error.code in _DENIED:
            raise RegistryError(
                f"the schema registry at {self.connection} refuses user {self.connection.user!r} ({error.code}): set "
                "login and password of its connection, and the rights to read and register schemas"
            ) from None
        if error.code in _BUSY:
            raise RegistryUnavailableError(
                f"the schema registry at {self.connection} answered {error.code} {_TRIES} times: {answer.message!r}"
            ) from None
        if 300 <= error.code < 400:
            raise RegistryError(
                f"the schema registry at {self.connection} answers that it is elsewhere ({error.code}): set its own "
                "URL in its connection"
            ) from None
        return answer

    def _unavailable(self, error: Exception, login: RegistryLogin) -> RegistryUnavailableError | SettingsError:
        reason = getattr(error, "reason", error)
        if "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return SettingsError(
                f"the schema registry at {self.connection} shows a certificate that is not trusted ({reason}): set "
                "ssl_ca of its connection to the file of the authority that signed it"
            )
        return RegistryUnavailableError(
            f"the schema registry at {self.connection} was asked {_TRIES} times and does not answer: "
            f"{login.hide_in(str(reason))}"
        )


def _quote(subject: str) -> str:
    return quote(subject, safe="")


def _read(answer: Any) -> Any:
    """The parsed JSON of a response, or its text if it is not JSON."""
    try:
        data: bytes = answer.read(_LARGEST + 1)
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    if len(data) > _LARGEST:
        return f"an answer of more than {_LARGEST:,} bytes"
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data[:2000].decode(errors="replace")
