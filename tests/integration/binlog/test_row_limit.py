"""How far a binlog range may reach for a number of row changes, on real servers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.binlog.search.prepared_rows import PreparedRows
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import head
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended


@dataclass
class Written:
    """Transactions with a known number of rows each."""

    server: SqlServer
    session: Session
    database: str
    start: ResumePoint
    ends: list[tuple[BinlogCoordinates, int]] = field(default_factory=list)
    """Where each transaction ends, and its number of rows."""

    def write(self, *statements: str, rows: int) -> None:
        """Execute a transaction."""
        with self.server.connect(database=self.database, autocommit=False) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
        self.ends.append((head(self.session).coordinates, rows))

    def insert(self, rows: int, *, table: str = "t", before: str = "DO 0") -> None:
        self.write(before, f"INSERT INTO {table} (n) VALUES {', '.join(['(NULL)'] * rows)}", rows=rows)

    def windows(self, limit: int) -> list[list[int]]:
        """The rows of the transactions of each window; windows are cut one after another."""
        finder = Finder(ServerBinlogs(self.session))
        at, last, windows = self.start, head(self.session), list[list[int]]()
        while at.coordinates != last.coordinates:
            end = finder.within_rows(at, last, limit)
            assert finder.at(end.coordinates).gtids == end.gtids
            windows.append([rows for place, rows in self.ends if at.coordinates < place <= end.coordinates])
            assert at.coordinates < end.coordinates
            at = end
        return [window for window in windows if window]


def check(windows: list[list[int]], written: Written, limit: int) -> None:
    """Check that no window has more rows, unless it is one transaction, and that none could have one more."""
    assert [rows for window in windows for rows in window] == [rows for _, rows in written.ends]
    for window in windows:
        assert sum(window) <= limit or len(window) == 1
    for window, after in itertools.pairwise(windows):
        assert sum(window) + after[0] > limit


@pytest.fixture(params=["mysql", "mariadb"])
def written(request: pytest.FixtureRequest, unique_name: str) -> Iterator[Written]:
    server: SqlServer = request.getfixturevalue(f"source_{request.param}")
    server.execute(f"CREATE DATABASE {unique_name}")
    server.execute("CREATE TABLE t (n TINYINT)", "CREATE TABLE other (n TINYINT, t TEXT)", database=unique_name)
    with Session(MysqlConnection.from_uri(server.url)) as session:
        server.execute("FLUSH BINARY LOGS")
        yield Written(server, session, unique_name, head(session))
    server.execute(f"DROP DATABASE {unique_name}")


COMPRESSED = "SET SESSION binlog_transaction_compression = ON"


@pytest.mark.parametrize("limit", [1, 10, 100, 250, 1000, 100_000])
def test_windows_are_as_large_as_the_limit_allows(written: Written, limit: int) -> None:
    for rows in (1, 7, 100, 100, 3000, 3, 100, 1):
        written.insert(rows)
    written.write("INSERT INTO other VALUES (1, REPEAT('x', 60000))", rows=1)
    written.write(
        "INSERT INTO t VALUES (1), (2)", "UPDATE t SET n = 4 WHERE n < 3", "DELETE FROM t WHERE n = 4", rows=6
    )
    written.server.execute("FLUSH BINARY LOGS")
    for rows in (2, 500, 1, 1):
        written.insert(rows)
    check(written.windows(limit), written, limit)


@pytest.mark.parametrize("limit", [1, 100, 1000, 5000])
def test_rows_of_compressed_transactions_count(written: Written, limit: int) -> None:
    """Thousands of equal rows take a few hundred bytes."""
    is_mariadb = isinstance(written.server, MariadbServer)
    settings = [f"SET GLOBAL log_bin_compress = {on}" for on in ("ON", "OFF")]
    if is_mariadb:
        written.server.execute(settings[0])
    try:
        for rows in (5, 1500, 100, 100, 4000, 3, 100):
            written.insert(rows, before="DO 0" if is_mariadb else COMPRESSED)
            written.insert(2)
    finally:
        if is_mariadb:
            written.server.execute(settings[1])
    check(written.windows(limit), written, limit)


@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
def test_rows_of_all_kinds_of_columns_count(written: Written, image: str) -> None:
    """The server counts the rows of each statement."""
    is_mariadb = isinstance(written.server, MariadbServer)
    written.server.execute(
        "CREATE TABLE kinds (id INT AUTO_INCREMENT PRIMARY KEY, a TINYINT, b BIGINT UNSIGNED, c DECIMAL(30, 9), "
        "d FLOAT, e DOUBLE, f CHAR(9), g VARCHAR(300), h TEXT, i LONGBLOB, j JSON, k BIT(11), l ENUM('a', 'b'), "
        "m SET('a', 'b'), n DATE, o TIME(3), p DATETIME(6), q TIMESTAMP(2) NULL, r YEAR, s POINT, t BINARY(5), u JSON)",
        database=written.database,
    )
    values = (
        "(1, 2, 3.5, 4, 5, 'f', REPEAT('g', 299), REPEAT('h', 999), REPEAT('i', 2000), "
        """'{"a": 1, "b": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}', 7, 'a', 'b', '2020-01-01', '01:02:03.4', """
        "'2020-01-01 01:02:03.4', '2020-01-01 01:02:03.4', 2020, POINT(1, 2), 't', '[1]')"
    )
    nulls = "(" + ", ".join(["NULL"] * 21) + ")"
    insert = "INSERT INTO kinds (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u) VALUES "
    with written.server.connect(database=written.database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_row_image = {image}")
        if not is_mariadb:
            cursor.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
        for statement in (
            insert + ", ".join([values, nulls] * 40),
            insert + ", ".join([nulls] * 11),
            "UPDATE kinds SET j = JSON_SET(j, '$.b', 'y') WHERE j IS NOT NULL AND id % 4 = 1",
            "UPDATE kinds SET j = JSON_SET(j, '$.b', 'zz'), u = '[2, 3]', a = 9 WHERE j IS NOT NULL",
            "UPDATE kinds SET i = REPEAT('n', 500), h = NULL WHERE id % 3 = 1",
            "UPDATE kinds SET a = 5",
            "DELETE FROM kinds WHERE id % 7 = 1",
            "DELETE FROM kinds",
        ):
            rows = cursor.execute(statement)
            assert rows
            written.ends.append((head(written.session).coordinates, rows))
    for limit in (1, 50, 91, 150, 400):
        check(written.windows(limit), written, limit)


def test_many_small_transactions_are_counted(written: Written) -> None:
    with (
        written.server.connect(database=written.database, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        for number in range(2000):
            cursor.execute("INSERT INTO t VALUES (%s)", (number % 100,))
    finder = Finder(ServerBinlogs(written.session))
    last = head(written.session)
    for limit in (1_000_000, 1500):
        began = time.monotonic()
        end = finder.within_rows(written.start, last, limit)
        print(f"{time.monotonic() - began:.3f} s for a limit of {limit:,} rows")
    began = time.monotonic()
    again = finder.within_rows(end, last, 1500)
    print(f"{time.monotonic() - began:.3f} s for a small window")
    assert written.start.coordinates < end.coordinates < again.coordinates == last.coordinates


@pytest.mark.parametrize("limit", [10, 100])
def test_rows_of_an_xa_transaction_count_where_they_are_published(written: Written, limit: int) -> None:
    values = ", ".join(["(1)"] * 60)
    prepare = ("XA START '{0}'", f"INSERT INTO t VALUES {values}", "XA END '{0}'", "XA PREPARE '{0}'")
    early, late = f"{written.database}-1", f"{written.database}-2"
    with written.server.connect(database=written.database) as connection, connection.cursor() as cursor:
        for statement in prepare:
            cursor.execute(statement.format(early))
        start = head(written.session)
        written.insert(5)
        cursor.execute(f"XA COMMIT '{early}'")
        after_early = head(written.session).coordinates
        written.insert(5)
        for statement in prepare:
            cursor.execute(statement.format(late))
        cursor.execute(f"XA COMMIT '{late}'")
        after_late = head(written.session).coordinates
        written.insert(5)
    finder, last = Finder(ServerBinlogs(written.session)), head(written.session)
    places: list[Any] = []
    at = start
    while at.coordinates != last.coordinates:
        at = finder.within_rows(at, last, limit)
        places.append(at.coordinates)
    first_end = written.ends[0][0]
    assert places[:2] == [first_end, after_early], "the rows of XA COMMIT are not known: it is a window of its own"
    assert after_late in places


XA_ROWS = 6


@contextmanager
def overlapping(written: Written, number: int) -> Iterator[None]:
    """Transactions of XA_ROWS rows, each committed (each fifth: rolled back) after the next one is prepared. The block
    runs while the first is prepared."""
    values = ", ".join(["(1)"] * XA_ROWS)
    with ExitStack() as stack:
        cursors = []
        for _ in range(2):
            connection = stack.enter_context(written.server.connect(database=written.database))
            cursors.append(stack.enter_context(connection.cursor()))
        for index in range(number + 1):
            xid, before = (f"'{written.database}-{each}'" for each in (index, index - 1))
            if index < number:
                for sql in (f"XA START {xid}", f"INSERT INTO t VALUES {values}", f"XA END {xid}", f"XA PREPARE {xid}"):
                    cursors[index % 2].execute(sql)
            if index == 0:
                yield
            else:
                cursors[(index - 1) % 2].execute(f"XA {'ROLLBACK' if index % 5 == 0 else 'COMMIT'} {before}")


def cut_all(written: Written, start: ResumePoint, limit: int, known: PreparedRows | None) -> list[BinlogCoordinates]:
    """The ends of the windows after ``start``."""
    finder, last, at, ends = Finder(ServerBinlogs(written.session)), head(written.session), start, list[Any]()
    while at.coordinates != last.coordinates:
        if known is not None:
            known.begin("server", at.coordinates)
        at = finder.within_rows(at, last, limit, known)
        if known is not None:
            known.end("server", at.coordinates)
        ends.append(at.coordinates)
    return ends


def test_the_rows_of_xa_transactions_are_known_in_later_windows(written: Written) -> None:
    with overlapping(written, 40):
        start = head(written.session)
    known = PreparedRows()
    ends = cut_all(written, start, 5 * XA_ROWS, known)
    rows = (39 + 40) * XA_ROWS  # prepared after the start, and then committed
    assert len(ends) <= rows // (5 * XA_ROWS) + 4, "one window more for the first, which was prepared before"
    assert known.rows == {}
    assert len(cut_all(written, start, 5 * XA_ROWS, None)) > len(ends) + 5, "else each unknown one has its own window"


@pytest.mark.parametrize("limit", [1, 4 * XA_ROWS])
def test_an_xa_transaction_larger_than_the_limit_is_known_later(written: Written, limit: int) -> None:
    start = head(written.session)
    with overlapping(written, 3):
        pass
    known = PreparedRows()
    ends = cut_all(written, start, limit, known)
    assert len(ends) == (6 if limit == 1 else 2)
    assert known.rows == {}


def test_what_was_prepared_is_forgotten_at_another_position(written: Written) -> None:
    start = head(written.session)
    with overlapping(written, 2):
        place = head(written.session)
    known, finder = PreparedRows(), Finder(ServerBinlogs(written.session))
    known.begin("server", start.coordinates)
    assert finder.within_rows(start, place, 1000, known) == place
    known.end("server", place.coordinates)
    for server, at, count in (("server", place, 1), ("other", place, 0), ("server", place, 0)):
        known.begin(server, at.coordinates)
        assert len(known.rows) == count
        known.end(server, at.coordinates)
