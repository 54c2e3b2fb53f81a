"""The dump stream returns the bytes of the file on the server's disk; lines of a damaged file end at the damage."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from changefeed.binlog.file import BinlogFileLines
from changefeed.binlog.search import scout as scout_module
from changefeed.binlog.search.scout import scout
from changefeed.errors import BinlogFormatError, BinlogGoneError, SourceUnavailableError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.window import Slice
from changefeed.source.mysql import dump
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

KINDS = pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])


def filled(server: SqlServer, database: str, megabytes: int = 1) -> Path:
    """A closed binlog file with small transactions and one row of ``megabytes``."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a LONGTEXT)")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS")
        name = cursor.fetchone()[0]
        for number in range(50):
            cursor.execute(f"INSERT INTO {database}.t VALUES ({number}, 'a')")
        cursor.execute("SELECT @@max_allowed_packet")
        if cursor.fetchone()[0] > megabytes << 20:
            cursor.execute(f"INSERT INTO {database}.t VALUES (1000, REPEAT('x', {megabytes << 20}))")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1001, 'b')")
        cursor.execute("FLUSH BINARY LOGS")
    return server.data / str(name)


def open_dump(server: SqlServer, file: str, start: int, end: int, **settings: int) -> DumpStream:
    session = Session(MysqlConnection.from_uri(server.url))
    return DumpStream(session, file=file, start=start, end=end, **settings)


def dumped(server: SqlServer, file: str, start: int, end: int) -> bytes:
    return b"".join(open_dump(server, file, start, end, server_id=7_654_321))


@KINDS
def test_a_dump_is_the_file_byte_for_byte(kind: str, request: pytest.FixtureRequest, unique_name: str) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    path = filled(server, unique_name, megabytes=20)
    data = path.read_bytes()
    assert dumped(server, path.name, 4, len(data)) == data[4:]
    description = int.from_bytes(data[13:17], "little")
    second = 4 + description
    after = second + int.from_bytes(data[second + 9 : second + 13], "little")
    inside = dumped(server, path.name, after, len(data))
    assert inside[description:] == data[after:]
    assert inside[4] == 15
    with pytest.raises(BinlogGoneError, match="does not have binlog"):
        dumped(server, path.name[:-6] + "999999", 4, 1000)
    head = server.execute("SHOW MASTER STATUS" if kind == "full_mariadb_server" else "SHOW BINARY LOG STATUS")[0]
    with pytest.raises(SourceUnavailableError, match="ended binlog"):
        dumped(server, head[0], 4, int(head[1]) + 1000)


@KINDS
def test_start_beyond_4_gb_is_read(
    kind: str, request: pytest.FixtureRequest, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four gigabytes; here the protocol ends at a few hundred bytes."""
    server: SqlServer = request.getfixturevalue(kind)
    path = filled(server, unique_name)
    data = path.read_bytes()
    description = int.from_bytes(data[13:17], "little")
    complete_file = Slice(0, path.name, 4, len(data))
    starts = [slice.start for slice in scout([data[4:]], complete_file, 1).slices]
    monkeypatch.setattr(dump, "LAST_DUMP_POSITION", starts[1])
    monkeypatch.setattr(scout_module, "LAST_DUMP_POSITION", starts[9])
    for start in starts[2], starts[-1]:
        sent = dumped(server, path.name, start, len(data))
        assert sent[description:] == data[start:]
        slice = Slice(0, path.name, start, len(data))
        assert scout([sent], slice, len(data)).slices == (slice,)
    assert [slice.start for slice in scout([data[4:]], complete_file, 1).slices] == starts[:10], (
        "no slice begins after it"
    )


@KINDS
def test_a_look_ends_no_dump_under_way_and_no_other_look(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {unique_name}")
        cursor.execute(f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY, a LONGTEXT)")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS")
        path = server.data / cursor.fetchone()[0]
        for number in range(6):  # more than the buffers of a connection hold: a dump that nobody reads waits
            cursor.execute(f"INSERT INTO {unique_name}.t VALUES ({number}, REPEAT('x', {4 << 20}))")
        cursor.execute("FLUSH BINARY LOGS")
    data = path.read_bytes()
    under_way = [
        iter(open_dump(server, path.name, 4, len(data), server_id=7_654_321)),
        iter(open_dump(server, path.name, 4, len(data))),
    ]
    begun = [next(dump) for dump in under_way]
    assert b"".join(open_dump(server, path.name, 4, len(data))) == data[4:]
    assert [first + b"".join(dump) for first, dump in zip(begun, under_way, strict=True)] == [data[4:]] * 2


@KINDS
def test_truncated_file_yields_complete_transactions_then_raises(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    data = filled(server, unique_name).read_bytes()
    cut = data[: len(data) // 2]  # inside the large row
    lines: list[dict[str, Any]] = []

    def read() -> None:
        for line in BinlogFileLines(None, DebeziumFormat("file", 0), stream=io.BytesIO(cut)).lines():
            lines.append(json.loads(line))

    with pytest.raises(BinlogFormatError, match=r"-:\d+"):
        read()
    rows = [line for line in lines if line["op"] == "c"]
    assert [row["after"]["id"] for row in rows] == list(range(50))


def test_garbage_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"\xfebin", b"\xfdbin" + bytes(600), b"\xfebin" + bytes(range(256)) * 40, b"\0" * 4000):
        path = tmp_path / "garbage"
        path.write_bytes(data)
        with pytest.raises(BinlogFormatError, match="garbage"):
            list(BinlogFileLines(path, DebeziumFormat("file", 0)).lines())
