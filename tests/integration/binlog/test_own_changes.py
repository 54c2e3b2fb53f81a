"""The first change of a pipeline's own tables after a position, beside changes of other tables, on real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from changefeed.binlog.search.own_changes import OwnChange, OwnTables, find_own_change
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session, server_of
from changefeed.source.mysql.source import head
from devstack.sql_server import SqlServer


@dataclass
class Search:
    server: SqlServer
    database: str
    start: BinlogCoordinates

    def go_to_head(self) -> None:
        with Session(MysqlConnection.from_uri(self.server.url)) as session:
            self.start = head(session).coordinates

    def find(self, *, most_bytes: int = 1 << 20, cpu_seconds: float = 10.0) -> OwnChange:
        with Session(MysqlConnection.from_uri(self.server.url)) as session:
            binlogs = ServerBinlogs(session)
            end = binlogs.end().coordinates
            ranges = [
                (
                    self.start if file.name == self.start.file else BinlogCoordinates(file.name, FIRST_POSITION),
                    end.position if file.name == end.file else file.size_bytes,
                )
                for file in binlogs.files()
                if file.number >= self.start.number
            ]
            own = OwnTables(
                lambda database, table: (database, table) == (self.database, "own"),
                lambda database: database == self.database,
                server_of(session),
            )
            return find_own_change(ranges, binlogs.small_events, own, most_bytes=most_bytes, cpu_seconds=cpu_seconds)


@pytest.fixture(params=["full_mysql_server", "full_mariadb_server"])
def search(request: pytest.FixtureRequest, unique_name: str) -> Iterator[Search]:
    server: SqlServer = request.getfixturevalue(request.param)
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.own (id INT PRIMARY KEY AUTO_INCREMENT, n LONGTEXT)",
        f"CREATE TABLE {unique_name}.other LIKE {unique_name}.own",
        "FLUSH BINARY LOGS",
    )
    with Session(MysqlConnection.from_uri(server.url)) as session:
        start = head(session).coordinates
    yield Search(server, unique_name, start)
    server.execute(f"DROP DATABASE {unique_name}")


def write(search: Search, table: str, *, times: int = 1, text: str = "'x'") -> None:
    search.server.execute(*[f"INSERT INTO {table} (n) VALUES ({text})"] * times, database=search.database)


def test_change_of_an_own_table_is_found_after_changes_of_others(search: Search) -> None:
    write(search, "other", times=5)
    search.server.execute("ALTER TABLE other ADD m INT", "FLUSH BINARY LOGS", database=search.database)
    none = search.find()
    assert (none.is_found, none.seconds, none.reached > search.start) == (False, None, True)
    began = int(time.time())
    for change in ("INSERT INTO own (n) VALUES ('x')", "ALTER TABLE own ADD m INT", "TRUNCATE own", "DROP TABLE own"):
        write(search, "other")
        passed = search.find()
        assert passed.is_found is False, change
        search.server.execute(change, database=search.database)
        found = search.find()
        assert found.is_found, change
        assert found.seconds is not None
        assert found.seconds >= began - 1
        assert found.reached == passed.reached, "where its transaction begins"
        search.go_to_head()


@pytest.mark.parametrize("search", ["full_mysql_server"], indirect=True)  # MariaDB compresses no table maps
def test_change_in_a_compressed_transaction_is_found(search: Search) -> None:
    compress = "SET SESSION binlog_transaction_compression = ON"
    search.server.execute(compress, "INSERT INTO other (n) VALUES (REPEAT('x', 5000))", database=search.database)
    assert search.find().is_found is False
    search.server.execute(compress, "INSERT INTO own (n) VALUES (REPEAT('x', 5000))", database=search.database)
    assert search.find().is_found


def test_changes_that_show_no_own_table_count_as_own(search: Search) -> None:
    """Rows that were logged before the start, and those of a statement whose text may hide own tables."""
    xa = f"'{search.database}'"
    prepare = (f"XA START {xa}", "INSERT INTO own (n) VALUES ('x')", f"XA END {xa}", f"XA PREPARE {xa}")
    search.server.execute(*prepare, database=search.database)
    search.go_to_head()
    search.server.execute(f"XA COMMIT {xa}", database=search.database)
    assert search.find().is_found
    search.server.execute("CREATE VIEW seen AS SELECT id, n FROM own", database=search.database)
    search.go_to_head()
    statement = ("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO seen (n) VALUES ('x')")
    search.server.execute(*statement, database=search.database)
    assert search.find().is_found


def test_limits_end_the_search_at_a_commit_boundary(search: Search) -> None:
    write(search, "other", times=200)
    for limits in ({"most_bytes": 3000}, {"cpu_seconds": 0.0}):
        part = search.find(**limits)  # type: ignore[arg-type]
        assert (part.is_found, part.seconds is not None) == (None, True)
        assert part.reached > search.start
        search.start = part.reached
    assert search.find().is_found is False, "it goes on from there"
    write(search, "other", text="REPEAT('x', 5000000)")
    large = search.find(most_bytes=1 << 30)
    assert large.is_found is None, "a very large event is not read"
