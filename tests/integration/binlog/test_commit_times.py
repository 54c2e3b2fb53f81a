"""Commit time and connection of a change, from the GTID event of its transaction."""

from __future__ import annotations

import json
import time

import pytest
from integration.binlog_of import SERVER_UUID, binlog_of

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.search.scout import scout
from changefeed.formats.format import FormatSettings
from changefeed.formats.registry import format_of
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.records.block import MessageBlock
from changefeed.source.mysql.catalog import catalog_lookup
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

FORMAT = format_of("debezium", FormatSettings("shop", 0))


def test_all_slices_of_a_transaction_have_its_time_and_thread(full_mysql_server: MysqlServer, unique_name: str) -> None:
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(2000))",
        "SET original_commit_timestamp = 1769860800123456",
        "BEGIN",
        *(f"INSERT INTO t VALUES ({number}, REPEAT('x', 1500))" for number in range(20)),
        "COMMIT",
        "INSERT INTO t VALUES (100, 'later')",
    )
    slices = scout([binlog.data[FIRST_POSITION:]], binlog.slice, 4_000).slices
    assert sum(bool(slice.gtid) for slice in slices) > 3
    description = binlog.data[FIRST_POSITION : int.from_bytes(binlog.data[17:21], "little")]
    times: dict[int, tuple[int, ...]] = {}
    threads = set()
    for slice in slices:
        decoder = KernelDecoder(lambda _database, _table: Route("-", 1), lambda *_: None, FORMAT, SERVER_UUID)
        preamble = [] if slice.start == FIRST_POSITION else [description]
        for block in decoder.decode([*preamble, binlog.data[slice.start : slice.end]], slice):
            for message in block.messages() if isinstance(block, MessageBlock) else ():
                change = json.loads(message.value or b"")
                source = change["source"]
                threads.add(source["thread"])
                times[change["after"]["id"]] = (source["ts_ms"], source["ts_us"], source["ts_ns"])
    later = times.pop(100)
    assert times == dict.fromkeys(range(20), (1769860800123, 1769860800123456, 1769860800123456000))
    assert later[1] > 1769860800123456
    (thread,) = threads
    assert thread > 0


@pytest.mark.extended
def test_commit_time_falls_back_to_the_event_second(full_mariadb_server: MariadbServer, unique_name: str) -> None:
    binlog = binlog_of(
        full_mariadb_server, unique_name, "SET timestamp = 1769860800", "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
    )  # fmt: skip
    (message,) = binlog.messages(FORMAT)
    source = json.loads(message.value or b"")["source"]
    assert (source["ts_us"], source["thread"]) == (1769860800000000, None)


IN_SECONDS = 1_000_000
"""The precision of commit times on MariaDB, in microseconds."""


def reported_commits(server: SqlServer, database: str, *statements: str) -> dict[str, int]:
    """`SliceReport.commits` of the statements, by the table's name."""
    binlog = binlog_of(server, database, "CREATE TABLE t (id INT PRIMARY KEY)", *statements)
    lookup = catalog_lookup(lambda: Session(MysqlConnection.from_uri(server.root_url)))
    (report,) = binlog.reports(FORMAT, lookup=lookup)
    return {name.partition(".")[2]: micros for name, micros in report.commits.items()}


@pytest.mark.parametrize(
    ("server", "precision"),
    [("full_mysql_server", 1), ("mysql_server", 1), ("full_mariadb_server", IN_SECONDS)],
    ids=["GTIDs", "anonymous", "MariaDB"],
)
def test_report_has_the_first_commit_of_a_table(
    server: str, precision: int, unique_name: str, request: pytest.FixtureRequest
) -> None:
    """The commit's time is not that of the statement: the transaction waits before its commit."""
    before = time.time_ns() // 1000
    commits = reported_commits(
        request.getfixturevalue(server),
        unique_name,
        *("BEGIN", "INSERT INTO t VALUES (1)", "DO SLEEP(1.1)", "COMMIT"),
        *("DO SLEEP(1.1)", "INSERT INTO t VALUES (2)"),
    )
    after = time.time_ns() // 1000
    assert before + 1_100_000 - precision < commits["t"] < after - 1_100_000


@pytest.mark.extended
def test_table_without_published_rows_has_no_commit_time(full_mysql_server: MysqlServer, unique_name: str) -> None:
    assert reported_commits(full_mysql_server, unique_name, "CREATE TABLE u (id INT PRIMARY KEY)") == {}
