"""Which errors of a server may pass, and which lead to the next host of a source."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pymysql
import pytest

from changefeed.errors import FollowerUnavailableError, SourceError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql import hosts
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.follower_session import FollowerSession
from changefeed.source.mysql.session import Session, translate_errors

_CONNECTION = MysqlConnection("127.0.0.1", 3306, "reader", "")

PASSING = {
    1040: "Too many connections",
    1053: "Server shutdown in progress",
    1203: "User reader already has more than 'max_user_connections' active connections",
    1226: "User 'reader' has exceeded the 'max_user_connections' resource (current value: 1)",
    1317: "Query execution was interrupted",
    1927: "Connection was killed",
    3032: "The server is currently in offline mode",
    3169: "The session was killed",
    4031: "The client was disconnected by the server because of inactivity",
}
"""Codes and texts of errors that may pass, without those that PyMySQL raises."""


@pytest.mark.parametrize("code", PASSING)
def test_full_offline_or_killed_session_may_be_retried(code: int) -> None:
    error = pymysql.OperationalError(code, PASSING[code])
    words = rf"127\.0\.0\.1:3306 .*{PASSING[code][:20]}.*Run again"
    with pytest.raises(SourceUnavailableError, match=words), translate_errors(_CONNECTION):
        raise error
    follower = cast(FollowerSession, SimpleNamespace(connection=_CONNECTION))
    with pytest.raises(FollowerUnavailableError, match=words), FollowerSession.translate_errors(follower):
        raise error


@pytest.mark.parametrize("code", PASSING)
def test_dump_that_ends_for_a_passing_reason_may_be_retried(code: int) -> None:
    refusal = b"\xff" + code.to_bytes(2, "little") + b"#HY000" + PASSING[code].encode()
    with pytest.raises(SourceUnavailableError, match=rf"bin\.000007:4.*{PASSING[code][:20]}"):
        list(_dump(refusal).events())


def _dump(packet: bytes) -> DumpStream:
    """A dump whose server answers with one packet."""
    answer = [len(packet).to_bytes(3, "little") + b"\1", packet]
    raw = SimpleNamespace(
        _execute_command=lambda *_: None,
        _read_ok_packet=lambda: None,
        _rfile=SimpleNamespace(read=lambda _size: answer.pop(0)),
        _sock=SimpleNamespace(settimeout=lambda _seconds: None),
    )
    session = nullcontext(SimpleNamespace(connection=_CONNECTION, is_mariadb=False, raw=raw, rows=lambda _sql: []))
    return DumpStream(cast(Session, session), file="bin.000007", start=4, end=1000)


def test_closed_connection_that_is_used_again_may_be_retried() -> None:
    with pytest.raises(SourceUnavailableError, match="connection was closed"), translate_errors(_CONNECTION):
        raise pymysql.InterfaceError(0, "")


@pytest.fixture
def two_hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The error code of each host's login; a host without one lets the user log in."""
    codes: dict[str, int] = {}

    def log_in(connection: MysqlConnection) -> Any:
        with translate_errors(connection):
            if connection.host in codes:
                raise pymysql.OperationalError(codes[connection.host], PASSING[codes[connection.host]])
        return nullcontext()

    monkeypatch.setattr(hosts, "Session", log_in)
    return codes


@pytest.mark.parametrize("code", [1053, 3032])
def test_host_that_is_offline_leads_to_the_next_one(two_hosts: dict[str, int], code: int) -> None:
    two_hosts["db1"] = code
    assert hosts.first_reachable(MysqlConnection.all_from_uri("mysql://u:p@db1,db2:3306")).host == "db2"


@pytest.mark.parametrize("code", [1040, 1203, 1226, 1317])
def test_host_that_is_busy_does_not_lead_to_the_next_one(two_hosts: dict[str, int], code: int) -> None:
    two_hosts["db1"] = code
    with pytest.raises(SourceUnavailableError, match="db1:3306"):
        hosts.first_reachable(MysqlConnection.all_from_uri("mysql://u:p@db1,db2:3306"))


def test_error_that_does_not_pass_stays_terminal() -> None:
    with pytest.raises(SourceError, match="answered with error 1064"), translate_errors(_CONNECTION):
        raise pymysql.ProgrammingError(1064, "You have an error in your SQL syntax")
