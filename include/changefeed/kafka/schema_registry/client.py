"""A registry asked over HTTP, with a bounded number of tries.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html, which Karapace and Apicurio's
`/apis/ccompat/v7` follow.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

import orjson
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from changefeed.errors import CompatibilityError, RegistryError, RegistryUnavailableError, SettingsError
from changefeed.kafka.schema_registry.connection import RegistryConnection

_TRIES = 4
_WAIT = wait_exponential(multiplier=0.25, max=4)
_LARGEST = 64 << 20
"""Bytes of an answer."""
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_BUSY = frozenset({429, 500, 502, 503, 504})
_DENIED = frozenset({401, 403})
NOT_FOUND, CONFLICT, UNPROCESSABLE = 404, 409, 422


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A registry that sends the login elsewhere is not followed."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Answer:
    """An answer that is not an error of the connection: its status, and its JSON."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        """What the registry says of a refusal."""
        text = self.body.get("message", "") if isinstance(self.body, dict) else str(self.body)
        return str(text)[:2000]


@dataclass(frozen=True)
class Registry:
    """The registry at ``connection``; nothing is connected before it is asked something.

    All raise RegistryUnavailableError where it does not answer after some tries, RegistryError where it refuses the
    login or what is asked, SettingsError for certificates that cannot be read.
    """

    connection: RegistryConnection

    def id_of(self, subject: str, schema: str) -> int | None:
        """The id of ``schema`` under ``subject``; None where it is not registered there."""
        answer = self._ask("POST", f"subjects/{_quoted(subject)}", {"schema": schema})
        return None if answer.status == NOT_FOUND else self._id(answer, subject)

    def register(self, subject: str, schema: str) -> int:
        """The id of ``schema`` under ``subject``, where it is registered now, if it was not before.

        Raises CompatibilityError, in the registry's words, where it does not go with those that the subject has.
        """
        answer = self._ask("POST", f"subjects/{_quoted(subject)}/versions", {"schema": schema})
        if answer.status == CONFLICT:
            raise CompatibilityError(answer.message)
        return self._id(answer, subject)

    def level(self, subject: str) -> str:
        """The compatibility that ``subject`` is held to: BACKWARD, FORWARD_TRANSITIVE, NONE and the like."""
        answer = self._ask("GET", f"config/{_quoted(subject)}?defaultToGlobal=true")
        if answer.status == NOT_FOUND:  # registries without defaultToGlobal
            answer = self._ask("GET", "config")
        found = self._body(answer, dict, f"the compatibility of subject {subject!r}")
        return str(found.get("compatibilityLevel") or found.get("compatibility") or "BACKWARD").upper()

    def schemas(self, subject: str, *, latest: bool) -> list[str]:
        """The schemas of ``subject``, oldest first, or only the ``latest``; none where there is no such subject."""
        answer = self._ask("GET", f"subjects/{_quoted(subject)}/versions")
        if answer.status == NOT_FOUND:
            return []
        versions = sorted(self._body(answer, list, f"the versions of subject {subject!r}"))
        return [self._schema(subject, version) for version in (versions[-1:] if latest else versions)]

    def schema(self, number: int) -> str | None:
        """The Avro schema whose id is ``number``; None where there is none, or it is one of another kind."""
        answer = self._ask("GET", f"schemas/ids/{number}")
        if answer.status == NOT_FOUND:
            return None
        found = self._body(answer, dict, f"the schema with id {number}")
        return str(found["schema"]) if found.get("schemaType", "AVRO") == "AVRO" and "schema" in found else None

    def _schema(self, subject: str, version: int) -> str:
        answer = self._ask("GET", f"subjects/{_quoted(subject)}/versions/{version}")
        return str(self._body(answer, dict, f"version {version} of subject {subject!r}")["schema"])

    def _id(self, answer: Answer, subject: str) -> int:
        found = self._body(answer, dict, f"the id of a schema of subject {subject!r}").get("id")
        if not isinstance(found, int) or not 0 <= found < 2**31:
            raise RegistryError(f"the schema registry at {self.connection} gave {found!r} as the id of a schema")
        return found

    def _body(self, answer: Answer, wanted: type, what: str) -> Any:
        if answer.status == http.HTTPStatus.OK and isinstance(answer.body, wanted):
            return answer.body
        hint = ""
        if answer.status == UNPROCESSABLE:
            hint = " It does not take the schema: an older registry may know less of Avro than was registered before."
        raise RegistryError(
            f"the schema registry at {self.connection} was asked for {what}, and answered {answer.status}: "
            f"{answer.message!r}.{hint} Is the connection's URL that of a registry with Confluent's interface?"
        )

    def __getstate__(self) -> dict[str, RegistryConnection]:
        return {"connection": self.connection}

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if (context := self.connection.tls()) is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers)

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
        if self.connection.authorization is not None:
            headers["Authorization"] = self.connection.authorization
        data = None if body is None else orjson.dumps(body)
        request = urllib.request.Request(f"{self.connection.url}/{path}", data, headers, method=method)
        seconds = min(self.connection.patience.answer_seconds, 30)
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                return Answer(answer.status, _read(answer))
        except urllib.error.HTTPError as error:
            return self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from None

    def _refused(self, error: urllib.error.HTTPError) -> Answer:
        answer = Answer(error.code, _read(error))
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

    def _unavailable(self, error: Exception) -> RegistryUnavailableError | SettingsError:
        reason = getattr(error, "reason", error)
        if "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return SettingsError(
                f"the schema registry at {self.connection} shows a certificate that is not trusted ({reason}): set "
                "ssl_ca of its connection to the file of the authority that signed it"
            )
        return RegistryUnavailableError(
            f"the schema registry at {self.connection} was asked {_TRIES} times and does not answer: {reason}"
        )


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _read(answer: Any) -> Any:
    """The JSON of an answer; its text where it is none."""
    try:
        data: bytes = answer.read(_LARGEST)
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data[:2000].decode(errors="replace")
