"""A server that stops sending in a dump, while its machine still answers the kernel's probes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from changefeed.errors import SourceUnavailableError
from changefeed.model.connection import AnswerLimits, MysqlConnection
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session
from devstack.identity import ProcessId
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.sql_server import SqlServer

ROWS, ROW_BYTES = 60, 1_000_000
"""More than the buffers of a connection take."""

READS: dict[str, Callable[[DumpStream], Iterator[bytes]]] = {"chunks": iter, "events": DumpStream.events}


@pytest.fixture(scope="module", params=[MysqlServer, pytest.param(MariadbServer, marks=pytest.mark.extended)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    """A server of its own with a large binlog."""
    folder: Path = tmp_path_factory.mktemp("own")
    with run_server(request.param(folder / "server", owner=ProcessId.own(), quick=True)) as server:
        server.execute("CREATE DATABASE frozen", "CREATE TABLE frozen.t (a LONGTEXT)", "FLUSH BINARY LOGS")
        server.execute(*[f"INSERT INTO frozen.t VALUES (REPEAT('x', {ROW_BYTES}))"] * ROWS)
        yield server


@pytest.mark.parametrize(("read", "tls"), [("chunks", "preferred"), ("events", "disabled")])
@pytest.mark.timeout(120)
def test_dump_from_a_frozen_server_ends_with_a_retryable_error(server: SqlServer, read: str, tls: str) -> None:
    file, end = server.head().split(":")
    uri = f"{server.url}/?ssl_mode={tls}"
    session = Session(MysqlConnection.from_uri(uri, AnswerLimits(answer_seconds=3)))
    events = READS[read](DumpStream(session, file=file, start=4, end=int(end)))
    next(events)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(
            SourceUnavailableError, match=rf"sent nothing of binlog '{file}' for 3 seconds.*[Rr]un again"
        ):
            list(events)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    again = READS[read](DumpStream(Session(MysqlConnection.from_uri(uri)), file=file, start=4, end=int(end)))
    assert sum(map(len, again)) == int(end) - 4
