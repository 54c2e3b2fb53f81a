"""Which pages are Airflow's own: hosts, origins, and what a browser says of a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from changefeed_web.origins import Hosts, OriginCheck, normalize_host

PROXIED = Hosts.of("https://airflow.example.com/team/", ["10.0.0.5:8080"])
LOCAL = Hosts.of("http://localhost:8080", [])


def status(hosts: Hosts, headers: dict[str, str], method: str = "POST", *, all_admins: bool = False) -> int:
    """What a request is answered with: 200 where it reaches the application."""
    sent: list[Any] = []

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "headers": raw}
    asyncio.run(OriginCheck(application, hosts, all_admins=all_admins)(scope, _nothing, send))
    return int(sent[0]["status"])


async def _nothing() -> Any:
    raise AssertionError("nobody reads the body")


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("Airflow.Example.com", "airflow.example.com"),
        ("airflow.example.com.:443", "airflow.example.com"),
        ("airflow.example.com:80", "airflow.example.com"),
        ("localhost:8080", "localhost:8080"),
        ("[::1]:8080", "[::1]:8080"),
        ("evil@localhost", None),
        ("localhost:8080/evil", None),
        ("localhost evil", None),
        ("::1", None),
        ("", None),
    ],
)
def test_an_address_is_written_in_one_way(host: str, known: str | None) -> None:
    assert normalize_host(host) == known


def test_the_machine_itself_is_a_host_only_where_airflow_has_no_other_name() -> None:
    for host in ("localhost:9999", "127.0.0.1", "127.8.8.8:80", "[::1]:8080"):
        assert (
            normalize_host(host) in LOCAL,
            normalize_host(host) in Hosts.of("", []),
            normalize_host(host) in PROXIED,
        ) == (
            True,
            True,
            False,
        )
    for host in ("evil.example", "localhost.evil.example", "0.0.0.0:8080", "10.0.0.5", "", None):
        assert (host and normalize_host(host)) not in LOCAL


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "airflow.example.com", "Origin": "https://airflow.example.com"}, 200),
        ({"Host": "airflow.example.com:443", "Origin": "https://airflow.example.com"}, 200),
        ({"Host": "airflow.example.com"}, 200),
        ({"Host": "10.0.0.5:8080", "Origin": "https://airflow.example.com"}, 200),
        ({"Host": "10.0.0.5:8081", "Origin": "https://airflow.example.com"}, 403),
        ({"Host": "airflow.example.com", "Origin": "https://airflow.example.com:8443"}, 403),
        ({"Host": "airflow.example.com", "Origin": "https://airflow.example.com.evil.example"}, 403),
        ({"Host": "airflow.example.com", "Origin": "file://airflow.example.com"}, 403),
        ({"Host": "airflow.example.com", "Origin": "null"}, 403),
        ({"Host": "airflow.example.com", "Origin": ""}, 403),
        ({"Host": "airflow.example.com", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "airflow.example.com", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost:8080"}, 403),
        ({"X-Forwarded-Host": "airflow.example.com"}, 403),
        ({"Host": "evil.example", "X-Forwarded-Host": "airflow.example.com"}, 403),
        ({"Host": "10.9.9.9", "Authorization": "Bearer t"}, 200),
        ({"Host": "10.9.9.9", "Authorization": "Basic dTpw"}, 403),
        ({"Host": "10.9.9.9", "Authorization": "Bearer t", "Sec-Fetch-Site": "same-origin"}, 403),
        ({"Host": "10.9.9.9", "Authorization": "Bearer t", "Content-Length": "2", "Content-Type": "text/plain"}, 415),
        (
            {"Host": "airflow.example.com", "Content-Length": "2", "Content-Type": "application/json; charset=utf-8"},
            200,
        ),
        ({"Host": "airflow.example.com", "Transfer-Encoding": "chunked"}, 415),
    ],
)
def test_origin_through_a_reverse_proxy_uses_the_public_host_name(headers: dict[str, str], expected: int) -> None:
    assert status(PROXIED, headers) == expected


def test_a_page_may_be_led_to_and_read_from_elsewhere_but_under_a_known_name_only() -> None:
    for method in ("GET", "HEAD"):
        assert status(LOCAL, {"Host": "localhost:8080", "Sec-Fetch-Site": "cross-site"}, method) == 200
        assert status(LOCAL, {"Host": "evil.example:8080"}, method) == 403


def test_a_token_that_airflow_gives_to_everybody_proves_nothing() -> None:
    rebound = {"Host": "evil.example:8080", "Authorization": "Bearer t"}
    assert status(LOCAL, rebound, "GET") == 200
    assert status(LOCAL, rebound, "GET", all_admins=True) == 403
    assert status(LOCAL, {"Host": "localhost:8080"}, all_admins=True) == 200
