"""The end of the binlog that is written, and not yet on disk: a server shows it, and sends it after its sync."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import LAST_DUMP_POSITION, BinlogCoordinates
from changefeed.source.mysql import dump, source
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer
from devstack.process import run_server

LONGEST_DELAY = {"sync_binlog": 1, "binlog_group_commit_sync_delay": 1_000_000}
"""Each commit waits for a second between its write and its sync."""

READS: dict[str, Callable[[DumpStream], Iterator[bytes]]] = {"chunks": iter, "events": DumpStream.events}


def next_head(connection: MysqlConnection) -> BinlogCoordinates:
    """The head just after it has moved."""
    with Session(connection) as session:
        before = head = source.head_coordinates(session)
        while head == before:
            time.sleep(0.01)
            head = source.head_coordinates(session)
        return head


@pytest.mark.timeout(120)
@pytest.mark.parametrize("last_position", [LAST_DUMP_POSITION, pytest.param(200, marks=pytest.mark.extended)])
@pytest.mark.parametrize("read", READS)
def test_dump_up_to_the_head_waits_for_its_sync(
    read: str, last_position: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it starts after the last position at which a dump can start."""
    monkeypatch.setattr(dump, "LAST_DUMP_POSITION", last_position)
    with run_server(MysqlServer(tmp_path / "own", options=LONGEST_DELAY, owner=ProcessId.own(), quick=True)) as server:
        connection = MysqlConnection.from_uri(server.url)
        server.execute("CREATE DATABASE synced", "CREATE TABLE synced.t (a INT)")
        begin, ended = int(server.head().split(":")[1]), threading.Event()

        def write() -> None:
            while not ended.is_set():
                server.execute("INSERT INTO synced.t VALUES (1)")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for start in (begin, 4):
                head = next_head(connection)
                stream = DumpStream(Session(connection), file=head.file, start=start, end=head.position)
                found = b"".join(READS[read](stream))
                data = (server.data / head.file).read_bytes()
                described = 4 + int.from_bytes(data[13:17], "little")
                rest = data[max(start, described) : head.position]
                assert found.endswith(rest)
                assert len(found) == len(rest) + described - 4
        finally:
            ended.set()
            writer.join()
