"""Cutting a binlog file into slices: whatever the cuts, the messages are those of the complete file."""

from __future__ import annotations

from pathlib import Path

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.search.scout import scout
from changefeed.formats.format import FormatSettings
from changefeed.formats.registry import format_of
from changefeed.model.gtid import GtidSet
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

Decoded = tuple[dict[tuple[str, int], list[Message]], list[SliceReport]]


def fresh_file(server: SqlServer) -> Path:
    """A closed binlog file with a huge transaction among small ones, DDL and a savepoint."""
    server.execute("FLUSH BINARY LOGS")
    status = "SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS"
    (name, *_) = server.execute(status)[0]
    return server.data / name


def fill(server: SqlServer, database: str) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE a (id INT PRIMARY KEY, t VARCHAR(200), j LONGTEXT)")
        cursor.execute("CREATE TABLE b (id INT PRIMARY KEY, t VARCHAR(200)) ENGINE=MyISAM")
        for number in range(200):
            cursor.execute("INSERT INTO a VALUES (%s, REPEAT('x', 100), '{}')", (number,))
        cursor.execute("BEGIN")
        for start in range(1000, 6000, 500):
            values = ", ".join(f"({number}, REPEAT('y', 150), '[]')" for number in range(start, start + 500))
            cursor.execute(f"INSERT INTO a VALUES {values}")
            cursor.execute("SAVEPOINT s")
        cursor.execute("UPDATE a SET t = 'z' WHERE id >= 5000")
        cursor.execute("COMMIT")
        cursor.execute("ALTER TABLE a ADD COLUMN extra INT")
        for number in range(100):
            cursor.execute("INSERT INTO b VALUES (%s, REPEAT('w', 100))", (number,))
            cursor.execute("DELETE FROM a WHERE id = %s", (number,))
        cursor.execute("FLUSH BINARY LOGS")


def decode(path: Path, slices: list[Slice], database: str) -> Decoded:
    data = path.read_bytes()
    description = data[4 : 4 + int.from_bytes(data[13:17], "little")]

    def route(of: str, table: str) -> Route | None:
        return Route(f"{of}.{table}", 3) if of == database else None

    decoder = KernelDecoder(route, lambda *_: None, format_of("debezium", FormatSettings("p", 0)), "uuid")
    messages: dict[tuple[str, int], list[Message]] = {}
    reports = []
    for slice in slices:
        preamble = [] if slice.start == 4 else [description]
        for item in decoder.decode([*preamble, data[slice.start : slice.end]], slice):
            if isinstance(item, MessageBlock):
                messages.setdefault((item.topic, item.partition), []).extend(item.messages())
            else:
                reports.append(item)
    return messages, reports


def check(server: SqlServer, database: str) -> None:
    path = fresh_file(server)
    fill(server, database)
    complete_file = Slice(0, path.name, 4, path.stat().st_size)
    expected, (expected_report,) = decode(path, [complete_file], database)
    assert sum(expected_report.rows[f"{database}.a"].values()) == 200 + 5000 + 1000 + 100
    for slice_bytes in (1, 5_000, 40_000, 100_000_000):
        found = scout([path.read_bytes()[4:]], complete_file, slice_bytes)
        slices = list(found.slices)
        assert [slice.start for slice in slices[1:]] == [slice.end for slice in slices[:-1]]
        assert len(slices) > 3 or slice_bytes > 1_000_000
        if slice_bytes == 40_000:
            assert any(slice.gtid for slice in slices), "the huge transaction is cut at its statements"
        messages, reports = decode(path, slices, database)
        assert messages == expected
        assert sum(report.size_bytes for report in reports) == complete_file.size_bytes
        assert sum(report.transactions for report in reports) == expected_report.transactions
        sets = [GtidSet.parse(report.gtids) for report in reports]
        assert str(sets[0].union(*sets[1:])) == expected_report.gtids
        statements = [statement.sql for report in reports for statement in report.statements]
        assert [statement.sql for statement in found.statements] == statements
        assert sum("ALTER TABLE" in sql for sql in statements) == 1


def test_slices_of_a_mysql_binlog_equal_the_complete_file(mysql_server: MysqlServer, database: str) -> None:
    check(mysql_server, database)


def test_slices_of_a_mariadb_binlog_equal_the_complete_file(mariadb_server: MariadbServer, unique_name: str) -> None:
    mariadb_server.execute(f"CREATE DATABASE `{unique_name}`")
    check(mariadb_server, unique_name)
