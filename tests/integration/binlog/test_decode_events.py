"""Events that fail a run, rare events, and the sources of events: files, relay logs, TLS, lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.binlog.test_decode_features import decode_bytes, decoded, none, run

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.framing import HEADER
from changefeed.binlog.file import BinlogFileLines
from changefeed.binlog.programs.explain import explain
from changefeed.errors import BinlogFormatError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.window import Slice
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session
from devstack.mysql import MysqlServer

ROOT = Path(__file__).parents[3]
HUGE_MB = int(os.environ.get("CHANGEFEED_HUGE_MB", "200"))
INCIDENT, START_ENCRYPTION, WRITE_ROWS, UNKNOWN = 26, 164, 30, 120
IGNORABLE = 0x80


def event(kind: int, body: bytes, flags: int = 0) -> bytes:
    """An event with a right checksum."""
    plain = HEADER.pack(1_800_000_000, kind, 1, HEADER.size + len(body) + 4, 0, flags) + body
    return plain + zlib.crc32(plain).to_bytes(4, "little")


def events(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kinds and bytes of a file's events."""
    at = FIRST_POSITION
    while at < len(data):
        _, kind, _, size, _, _ = HEADER.unpack_from(data, at)
        yield kind, data[at : at + size]
        at += size


@pytest.fixture
def plain(full_mysql_server: MysqlServer, unique_name: str) -> tuple[str, bytes]:
    """A database, and a file with one row of its table."""
    found = decoded(
        full_mysql_server, unique_name, run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    )
    return unique_name, (full_mysql_server.data / found.name).read_bytes()


def test_an_incident_stops_with_its_place_and_what_to_do(plain: tuple[str, bytes]) -> None:
    database, data = plain
    broken = data + event(INCIDENT, b"\x01\0\x04lost")
    with pytest.raises(BinlogFormatError, match=rf"b\.000001:{len(data)}, INCIDENT .*incident 1 \(lost\).*dump"):
        decode_bytes(broken, "b.000001", database)


def test_what_is_encrypted_is_refused(plain: tuple[str, bytes], tmp_path: Path) -> None:
    database, data = plain
    mariadbs = data + event(START_ENCRYPTION, b"\x01" + bytes(16))
    with pytest.raises(BinlogFormatError, match=rf"b\.000001:{len(data)}, .*START_ENCRYPTION .*encrypted"):
        decode_bytes(mariadbs, "b.000001", database)
    sent = decode_bytes(data + event(START_ENCRYPTION, b"\x01" + bytes(16), IGNORABLE), "b.000001", database)
    assert [value["after"]["id"] for value in sent.values] == [1], "a server that decrypts says so by the flag"
    path = tmp_path / "encrypted.000001"
    path.write_bytes(b"\xfdbin" + bytes(508) + data)
    with pytest.raises(BinlogFormatError, match=r"encrypted\.000001: the file is encrypted \(binlog_encryption"):
        list(BinlogFileLines(path, DebeziumFormat("file", 0)).lines())


def test_unknown_event_raises_unless_flagged_as_ignorable(plain: tuple[str, bytes]) -> None:
    database, data = plain
    with pytest.raises(BinlogFormatError, match=rf"b\.000001:{len(data)}, .*{UNKNOWN}.*does not know"):
        decode_bytes(data + event(UNKNOWN, b"what?"), "b.000001", database)
    found = decode_bytes(data + event(UNKNOWN, b"what?", IGNORABLE), "b.000001", database)
    assert [value["after"]["id"] for value in found.values] == [1]


def test_rows_of_partitions_carry_extra_data(full_mysql_server: MysqlServer, unique_name: str) -> None:
    values = ", ".join(f"({number})" for number in range(40))
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 4",
            f"INSERT INTO t VALUES {values}",
            "UPDATE t SET id = id + 41 WHERE id < 3",
            "DELETE FROM t WHERE id = 20",
        ),
    )
    data = (full_mysql_server.data / found.name).read_bytes()
    extra = [int.from_bytes(one[27:29], "little") for kind, one in events(data) if kind == WRITE_ROWS]
    assert extra
    assert min(extra) > 2
    assert sorted(value["after"]["id"] for value in found.values[:40]) == list(range(40))
    assert found.report.rows == {f"{unique_name}.t": {"c": 40, "u": 3, "d": 1}}


def test_a_relay_log_is_decoded(full_mysql_server: MysqlServer, spare_server: MysqlServer, unique_name: str) -> None:
    source = decoded(
        full_mysql_server, unique_name, run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    )
    connection = MysqlConnection.from_uri(full_mysql_server.url)
    size = (full_mysql_server.data / source.name).stat().st_size
    replica = spare_server
    with replica.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT @@server_id")
        own = cursor.fetchone()[0]
        cursor.execute("SET GLOBAL server_id = 4000000")
        cursor.execute(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = %s, SOURCE_PORT = %s, SOURCE_USER = %s, SOURCE_PASSWORD = %s, "
            "SOURCE_LOG_FILE = %s, SOURCE_LOG_POS = 4, SOURCE_SSL = 1 FOR CHANNEL 'relayed'",
            (connection.host, connection.port, connection.user, connection.password, source.name),
        )
        try:
            cursor.execute("START REPLICA IO_THREAD FOR CHANNEL 'relayed'")
            until = time.monotonic() + 30
            status: dict[str, object] = {}
            while time.monotonic() < until:
                cursor.execute("SHOW REPLICA STATUS FOR CHANNEL 'relayed'")
                names = [column[0] for column in cursor.description]
                status = dict(zip(names, cursor.fetchone(), strict=True))
                if (status["Source_Log_File"], status["Read_Source_Log_Pos"]) >= (source.name, size):
                    break
                time.sleep(0.1)
            else:
                pytest.fail(f"nothing relayed: {status}")
            cursor.execute("STOP REPLICA FOR CHANNEL 'relayed'")
            relayed = [path.read_bytes() for path in sorted(replica.data.glob("*relayed.[0-9]*"))]
        finally:
            cursor.execute("STOP REPLICA FOR CHANNEL 'relayed'")
            cursor.execute("RESET REPLICA ALL FOR CHANNEL 'relayed'")
            cursor.execute("SET GLOBAL server_id = %s", (own,))
    found = [value for data in relayed for value in decode_bytes(data, "relay.000001", unique_name).values]
    assert [value["after"] for value in found] == [value["after"] for value in source.values]


@pytest.mark.parametrize(
    "options", ["", "?ssl_verify=false", "?ssl_mode=disabled"], ids=["preferred", "asked for", "disabled"]
)
def test_a_dump_is_the_file_with_and_without_tls(
    full_mysql_server: MysqlServer, plain: tuple[str, bytes], options: str
) -> None:
    _, data = plain
    name = next(path.name for path in full_mysql_server.data.glob("*.[0-9]*") if path.read_bytes() == data)
    connection = MysqlConnection.from_uri(f"{full_mysql_server.url}{options}")
    with Session(connection) as session:
        cipher = session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
        assert bool(cipher) is ("disabled" not in options)
    dump = DumpStream(Session(connection), file=name, start=4, end=len(data), server_id=7_654_322)
    assert b"".join(dump) == data[4:]


def test_a_row_program_explains_itself(plain: tuple[str, bytes]) -> None:
    database, data = plain
    decoder = KernelDecoder(lambda _database, _table: Route("-", 1), none, DebeziumFormat("explain", 0), "")
    for _ in decoder.decode([data[4:]], Slice(0, "b.000001", 4, len(data))):
        pass
    output = explain(decoder.programs, f"{database}.t")
    assert output.startswith(f"table {database}.t, 1 columns\nmessage key: id\n")
    assert "'id': LONG, 4 bytes -> signed(4, " in output
    assert [line for line in output.splitlines() if line.endswith(":")] == [
        "columns:",
        "key:",
        *(f"value of op {op}:" for op in "cud"),
    ]
    with pytest.raises(KeyError):
        explain(decoder.programs, f"{database}.other")


def test_lines_have_statements_at_their_positions(full_mysql_server: MysqlServer, unique_name: str) -> None:
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1)",
            "ALTER TABLE t ADD a INT",
            "INSERT INTO t VALUES (2, 3)",
            "TRUNCATE t",
        ),
    )
    lines = BinlogFileLines(full_mysql_server.data / found.name, DebeziumFormat("file", 0)).lines()
    output = [(line["op"], line.get("sql") or line["after"]) for line in map(json.loads, lines)]
    assert output == [
        ("q", "CREATE TABLE t (id INT PRIMARY KEY)"),
        ("c", {"id": 1}),
        ("q", "ALTER TABLE t ADD a INT"),
        ("c", {"id": 2, "a": 3}),
        ("q", "TRUNCATE t"),
    ]


@pytest.mark.timeout(1200)
def test_a_huge_transaction_takes_little_memory(full_mysql_server: MysqlServer, unique_name: str) -> None:
    """200 MB in one transaction; CHANGEFEED_HUGE_MB=1024 makes it a gigabyte."""
    values = ", ".join(f"({number}, REPEAT('row ', 100))" for number in range(2000))
    found = decoded(
        full_mysql_server,
        unique_name,
        run("CREATE TABLE t (id INT PRIMARY KEY, a TEXT)", f"INSERT INTO t VALUES {values}"),
    )
    command = [
        sys.executable,
        "-m",
        "integration.decode_huge",
        str(full_mysql_server.data / found.name),
        str(HUGE_MB),
    ]
    paths = f"{ROOT / 'include'}{os.pathsep}{ROOT / 'tests'}"
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows, megabytes = map(int, done.stdout.split())
    assert rows > HUGE_MB * 2000
    assert megabytes < 512
