"""Each event type of docs/explanation/decoding.md is decoded, counted or fails the run, as the page says; servers
have the same types."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.binlog.test_decode_events import event
from integration.binlog.test_decode_features import Decoded, decode_bytes, decoded, run

from changefeed.binlog.events.framing import HEADER, IGNORABLE_FLAG, EventType
from changefeed.errors import BinlogFormatError
from changefeed.model.coordinates import FIRST_POSITION
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "decoding.md"
TABLE = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a TEXT, j JSON)"
MYSQL = (
    TABLE,
    "SET binlog_rows_query_log_events = ON",
    "INSERT INTO t VALUES (1, 'a', '{\"x\": 1}'), (2, 'b', '{}')",
    "SET binlog_row_value_options = PARTIAL_JSON",
    "UPDATE t SET j = JSON_SET(j, '$.x', 2) WHERE id = 1",
    "SET binlog_row_value_options = ''",
    "UPDATE t SET a = 'c' WHERE id = 2",
    "SET binlog_transaction_compression = ON",
    "INSERT INTO t VALUES (3, 'c', '{}')",
    "SET binlog_transaction_compression = OFF",
    "XA START 'x'",
    "DELETE FROM t WHERE id = 3",
    "XA END 'x'",
    "XA PREPARE 'x'",
    "XA COMMIT 'x'",
    "SET gtid_next = 'AUTOMATIC:tag'",
    "INSERT INTO t VALUES (4, 'd', '{}')",
    "SET gtid_next = 'AUTOMATIC'",
    "SET binlog_format = STATEMENT",
    "SET @text = 'e'",
    "INSERT INTO t (a) VALUES (CONCAT(@text, RAND()))",
    "LOAD DATA LOCAL INFILE '{file}' INTO TABLE t (a)",
)
OF_MYSQL = {"c": 4, "u": 2, "d": 1}
MARIADB = (
    TABLE,
    "INSERT INTO t VALUES (1, 'a', '{}'), (2, 'b', '{}')",
    "UPDATE t SET a = 'c'",
    "DELETE FROM t WHERE id = 1",
    "SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10",
    "INSERT INTO t VALUES (3, REPEAT('a', 500), '{}')",
    "UPDATE t SET a = REPEAT('b', 500)",
    "DELETE FROM t WHERE id = 3",
    f"ALTER TABLE t COMMENT '{'long ' * 100}'",
    "SET GLOBAL log_bin_compress = OFF",
)
OF_MARIADB = {"c": 3, "u": 4, "d": 2}
ALIASES = {
    "FORMAT_DESC": "FORMAT_DESCRIPTION",
    "UPDATE_ROWS_PARTIAL": "PARTIAL_UPDATE_ROWS",
    "GTID_TAGGED_LOG_EVENT": "GTID_TAGGED",
}
"""What SHOW BINLOG EVENTS calls types otherwise than changefeed does."""
UNWRITTEN = {
    EventType.ANONYMOUS_GTID,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED,
}
"""Decoded types that these two servers do not write: of servers without GTIDs, and of no release of MariaDB yet."""


def handling() -> dict[EventType, str]:
    """By type the first word of what docs/explanation/decoding.md says happens to it."""
    section = PAGE.read_text().partition("## Event types")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    found = [(name, what.split()[0].rstrip(":")) for names, what in rows for name in re.findall(r"`(\w+)`", names)]
    assert len(found) == len({name for name, _ in found}), "a type is listed twice"
    return {EventType[name]: what for name, what in found}


HANDLING = handling()


def of(what: str) -> list[EventType]:
    return [kind for kind, said in HANDLING.items() if said == what]


def kinds_by_position(data: bytes) -> Iterator[tuple[int, int]]:
    at = FIRST_POSITION
    while at < len(data):
        _, kind, _, size, _, _ = HEADER.unpack_from(data, at)
        yield at, kind
        at += size


def named_by_server(server: SqlServer, file: str) -> dict[int, str]:
    """By position the type that the server names, as changefeed spells it."""
    found: dict[int, str] = {}
    for _, position, name, *_ in server.execute(f"SHOW BINLOG EVENTS IN '{file}'"):
        plain = name.upper().replace(" ", "_")
        found[position] = ALIASES.get(plain, plain)  # events of a compressed transaction are listed at its end
    return found


def test_the_page_lists_every_type() -> None:
    assert set(HANDLING) == set(EventType)
    assert set(HANDLING.values()) == {"decoded", "counted", "stops"}


@pytest.fixture
def plain(full_mysql_server: MysqlServer, unique_name: str) -> tuple[str, bytes]:
    """A database, and a file with one row of its table."""
    found = decoded(full_mysql_server, unique_name, run(TABLE, "INSERT INTO t (id) VALUES (1)"))
    return unique_name, (full_mysql_server.data / found.name).read_bytes()


@pytest.mark.parametrize("kind", of("counted"), ids=lambda kind: kind.name)
def test_events_without_a_change_are_counted(plain: tuple[str, bytes], kind: EventType) -> None:
    database, data = plain
    before = decode_bytes(data, "b.000001", database)
    found = decode_bytes(data + event(kind, b"\x04" + bytes(40)), "b.000001", database)
    assert found.report.events == before.report.events + 1
    assert found.report.rows == before.report.rows == {f"{database}.t": {"c": 1}}
    assert found.report.statements == before.report.statements


@pytest.mark.parametrize("kind", of("stops"), ids=lambda kind: kind.name)
def test_unreadable_events_raise_with_their_name(plain: tuple[str, bytes], kind: EventType) -> None:
    database, data = plain
    bodies = {EventType.INCIDENT: b"\x01\x00\x04lost"}
    with pytest.raises(BinlogFormatError) as caught:
        decode_bytes(data + event(kind, bodies.get(kind, bytes(60))), "b.000001", database)
    assert f"b.000001:{len(data)}, {kind.name} ({int(kind)}): " in str(caught.value)


def test_a_type_of_a_later_server_stops_unless_it_may_be_ignored(plain: tuple[str, bytes]) -> None:
    database, data = plain
    later = max(EventType) + 50
    with pytest.raises(BinlogFormatError, match=f"{later}"):
        decode_bytes(data + event(later, b"later"), "b.000001", database)
    assert decode_bytes(data + event(later, b"later", IGNORABLE_FLAG), "b.000001", database).report.rows


@pytest.mark.parametrize("header_size", [13, 19], ids=["3.23", "4.0"])
def test_a_file_of_a_server_before_5_0_is_refused_by_name(header_size: int) -> None:
    """It begins with START_V3: version u16, server version, time u32; headers of 3.23 have no end and flags."""
    body = struct.pack("<H50sI", 1 if header_size == 13 else 3, b"4.0.30-log", 0)
    start = HEADER.pack(7, EventType.START_V3, 1, header_size + len(body), 0, 0)[:header_size] + body
    load = HEADER.pack(7, EventType.LOAD, 1, header_size + 30, 0, 0)[:header_size] + bytes(30)
    with pytest.raises(BinlogFormatError, match=r"begins with START_V3 \(1\): no server since MySQL 5\.1"):
        decode_bytes(b"\xfebin" + start + load, "b.000001", "d")


def decoded_on(server: SqlServer, database: str, statements: tuple[str, ...], folder: Path) -> tuple[Decoded, set[int]]:
    """The messages of these statements, and the types of events in their file, compared with the server's."""
    file = folder / "rows.txt"
    file.write_text("x\n" * 200_000)
    found = decoded(server, database, run(*(sql.replace("{file}", str(file)) for sql in statements)), local_infile=True)
    kinds = dict(kinds_by_position((server.data / found.name).read_bytes()))
    ours: dict[int, Any] = {at: EventType(kind).name.removeprefix("MARIADB_") for at, kind in kinds.items()}
    assert ours == named_by_server(server, found.name)
    assert found.report.events >= len(kinds)
    return found, set(kinds.values())


def test_every_type_that_servers_write_is_decoded(
    full_mysql_server: MysqlServer, full_mariadb_server: MariadbServer, unique_name: str, tmp_path: Path
) -> None:
    full_mysql_server.execute("SET GLOBAL local_infile = ON")
    of_mysql, mysql_kinds = decoded_on(full_mysql_server, unique_name, MYSQL, tmp_path)
    of_mariadb, mariadb_kinds = decoded_on(full_mariadb_server, unique_name, MARIADB, tmp_path)
    assert of_mysql.report.rows == {f"{unique_name}.t": OF_MYSQL}
    assert of_mariadb.report.rows == {f"{unique_name}.t": OF_MARIADB}
    statements = " ".join(statement.sql for statement in of_mysql.report.statements)
    assert "LOAD DATA" in statements
    assert "CONCAT(@text" in statements
    assert {EventType(kind).name for kind in {*of("decoded")} - UNWRITTEN - mysql_kinds - mariadb_kinds} == set()
    assert {HANDLING[EventType(kind)] for kind in mysql_kinds | mariadb_kinds} == {"decoded", "counted"}
