"""Restricts the page and the REST API to requests from Airflow's own pages and from programs.

- CSRF: a browser also sends the cookie of a logged-in user with requests from foreign pages. The headers Origin and
  Sec-Fetch-Site, which no page can change, show the origin: https://www.w3.org/TR/fetch-metadata/.
- DNS rebinding: a foreign page may resolve its own host name to Airflow's address. The Host header shows that name.

A page can set X-Forwarded-Host and similar headers, so they are ignored: a reverse proxy must pass the Host header
unchanged.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi.datastructures import Headers
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_ADDRESS = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/?#@\\\[\]]+)(?::(\d{1,5}))?", re.IGNORECASE)
_STANDARD_PORTS = {"80", "443"}
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class Hosts:
    """The hosts, `name` or `name:port`, under which browsers reach Airflow. Ports 80 and 443 are left out.

    With ``own_machine``, names and addresses of the machine itself are included, with any port.
    """

    addresses: frozenset[str]
    own_machine: bool

    @classmethod
    def of(cls, base_url: str, others: Iterable[str]) -> "Hosts":
        """The hosts of ``base_url`` (`[api] base_url`, may be empty) and ``others``.

        The machine itself is included if the base URL is on it or is empty.
        """
        base = normalize_host(urlsplit(base_url).netloc)
        known = {base, *map(normalize_host, others)} - {None}
        return cls(frozenset(name for name in known if name), own_machine=base is None or _is_own_machine(base))

    def __contains__(self, host: str | None) -> bool:
        return host is not None and (host in self.addresses or (self.own_machine and _is_own_machine(host)))


def normalize_host(host: str) -> str | None:
    """A Host header in the form of `Hosts`: lower case, without standard ports; None if it is invalid."""
    parts = _ADDRESS.fullmatch(host)
    if parts is None:
        return None
    name, port = parts[1].lower().removesuffix("."), parts[2]
    return name if port is None or port in _STANDARD_PORTS else f"{name}:{port}"


class OriginCheck:
    """ASGI middleware that refuses requests of foreign pages, before any other code sees them.

    Answers 403 if the Host header is not one of ``hosts``, or if a foreign page requests a change. Answers 415 if a
    body is not JSON, because HTML forms cannot send JSON.

    A program that sends a token, and neither Origin nor Sec-Fetch-Site as browsers do, may use any host. With
    ``all_admins`` it may not, because Airflow gives everybody a token.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts, *, all_admins: bool = False) -> None:
        self._app, self._hosts, self._all_admins = app, hosts, all_admins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        answer = self._refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        if not self._is_program(headers):
            host = normalize_host(headers.get("Host", ""))
            if host not in self._hosts:
                return _forbid(
                    403,
                    f"{headers.get('Host', '')!r}, the request's Host header, is not a known name of this Airflow (a "
                    "foreign page may have pointed its own name here)",
                )
            page = headers.get("Origin")
            if method not in _SAFE_METHODS and not self._is_own_origin(
                page, host, headers.get("Sec-Fetch-Site", "none")
            ):
                return _forbid(
                    403, f"the request comes from a page of {page or 'another site'!r}, which is not Airflow's own"
                )
        if method not in _SAFE_METHODS and _has_body(headers) and not _is_json(headers):
            return JSONResponse({"detail": "expected a body with Content-Type: application/json"}, 415)
        return None

    def _is_program(self, headers: Headers) -> bool:
        has_token = headers.get("Authorization", "").lower().startswith("bearer ") and not self._all_admins
        return has_token and "Origin" not in headers and "Sec-Fetch-Site" not in headers

    def _is_own_origin(self, origin: str | None, host: str | None, site: str) -> bool:
        if site not in ("same-origin", "none"):
            return False
        if origin is None:
            return True
        scheme, separator, rest = origin.partition("://")
        page = normalize_host(rest) if separator and scheme in ("http", "https") else None
        return page is not None and (page == host or page in self._hosts.addresses)


def _is_own_machine(host: str) -> bool:
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _has_body(headers: Headers) -> bool:
    return headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers


def _is_json(headers: Headers) -> bool:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower() == "application/json"


def _forbid(status: int, why: str) -> JSONResponse:
    how = (
        "If you reach Airflow by that name: set `[api] base_url` to it, or add it to `hosts` in the file that "
        "CHANGEFEED_SITE names. A reverse proxy must pass the Host header unchanged. Programs that send a token in "
        "`Authorization: Bearer` need none of this."
    )
    return JSONResponse({"detail": f"refused: {why}. Nothing was done. {how}"}, status)
