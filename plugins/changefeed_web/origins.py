"""Which web pages may use the page and the REST API: Airflow's own, and no other that a browser shows.

A browser sends the cookie of whoever is logged in along with requests of foreign pages too, and a page may point a name
of its own at Airflow (DNS rebinding), so that Airflow looks like its own server. The second is known by the request's
Host, the first by Origin and Sec-Fetch-Site, which no page can change: https://www.w3.org/TR/fetch-metadata/. A page
can send X-Forwarded-Host and the like as it wants, so nothing here reads them: a reverse proxy hands on Host itself.
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
_READING = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class Hosts:
    """The addresses, `name` or `name:port`, under which browsers reach Airflow. A port of 80 or 443 is left out.

    ``own_machine`` says that names and addresses of the machine itself are among them, with any port.
    """

    addresses: frozenset[str]
    own_machine: bool

    @classmethod
    def of(cls, base_url: str, others: Iterable[str]) -> "Hosts":
        """Those of `[api] base_url`, which may be empty, and ``others``. The machine itself is one where the base URL
        is on it, or there is none: an Airflow that has another name has no business with it."""
        base = address(urlsplit(base_url).netloc)
        known = {base, *map(address, others)} - {None}
        return cls(frozenset(name for name in known if name), own_machine=base is None or _is_own_machine(base))

    def __contains__(self, host: str | None) -> bool:
        return host is not None and (host in self.addresses or (self.own_machine and _is_own_machine(host)))


def address(host: str) -> str | None:
    """A Host header as `Hosts` has it; None for text that is none."""
    parts = _ADDRESS.fullmatch(host)
    if parts is None:
        return None
    name, port = parts[1].lower().removesuffix("."), parts[2]
    return name if port is None or port in _STANDARD_PORTS else f"{name}:{port}"


class OwnPagesOnly:
    """ASGI middleware that refuses what only a foreign page would ask for, before anything else looks at it.

    403 for a host that is not one of ``hosts``, and for a change that another page asks for; 415 for a body that is
    not JSON, which is all that a form can send. A program that sends a token of its own may use any host: it is no page
    that a browser shows, as those send Origin or Sec-Fetch-Site, or have no token. Where ``all_admins`` Airflow gives a
    token to whoever asks, which proves nothing.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts, *, all_admins: bool = False) -> None:
        self._app, self._hosts, self._all_admins = app, hosts, all_admins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        answer = self._refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        if not self._is_program(headers):
            host = address(headers.get("Host", ""))
            if host not in self._hosts:
                return _refused(
                    403,
                    f"this Airflow is not known as {headers.get('Host', '')!r}, the request's Host: a web page that "
                    "points its own name here would ask so",
                )
            page = headers.get("Origin")
            if method not in _READING and not self._is_own(page, host, headers.get("Sec-Fetch-Site", "none")):
                return _refused(
                    403, f"a page of {page or 'another site'!r} asks for this, and that is not Airflow's own"
                )
        if method not in _READING and _has_body(headers) and not _is_json(headers):
            return JSONResponse({"detail": "wanted a body with Content-Type: application/json"}, 415)
        return None

    def _is_program(self, headers: Headers) -> bool:
        has_token = headers.get("Authorization", "").lower().startswith("bearer ") and not self._all_admins
        return has_token and "Origin" not in headers and "Sec-Fetch-Site" not in headers

    def _is_own(self, origin: str | None, host: str | None, site: str) -> bool:
        if site not in ("same-origin", "none"):
            return False
        if origin is None:
            return True
        scheme, separator, rest = origin.partition("://")
        page = address(rest) if separator and scheme in ("http", "https") else None
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


def _refused(status: int, why: str) -> JSONResponse:
    how = (
        "If it is how you reach Airflow: set `[api] base_url` to that address, or name it in `hosts` of the file that "
        "CHANGEFEED_SITE names; have a reverse proxy hand on the Host header as it is. A program sends a token in "
        "`Authorization: Bearer`, and needs neither."
    )
    return JSONResponse({"detail": f"refused: {why}. {how}"}, status)
