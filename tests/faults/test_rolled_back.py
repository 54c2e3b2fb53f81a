"""Rows that were rolled back or only prepared are not published, over slices, a shuffle and windows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.feed import Feed, Runner, fresh_feed

from changefeed.binlog.events.framing import HEADER, EventType
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.process import run_server
from devstack.spark_connect import SparkConnectServer


@pytest.fixture(params=["mysql", "mariadb"])
def either(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    server = request.getfixturevalue(f"{request.param}_server")
    with fresh_feed(server, kafka_broker, unique_name, tmp_path, runner) as feed:
        yield feed


def prepare(feed: Feed, xid: str, *statements: str) -> None:
    """Prepare an XA transaction in a session that then ends."""
    work = (f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'")
    feed.mysql.execute(*work, database=feed.name)


def roll_back_transactions(feed: Feed) -> None:
    """Roll back transactions, partly or completely; MariaDB logs them with rows."""
    with feed.mysql.connect(database=feed.name, autocommit=True) as connection, connection.cursor() as cursor:
        for work in (
            "BEGIN",
            "INSERT INTO accounts VALUES (1000, 1, 'stays')",
            "SAVEPOINT `here`",
            *(f"INSERT INTO accounts VALUES ({1001 + row}, 1, REPEAT('void', 40))" for row in range(20)),
            "CREATE TEMPORARY TABLE held (id INT)",
            "ROLLBACK TO HERE",
            "UPDATE accounts SET version = 2 WHERE id = 1000",
            "COMMIT",
            "BEGIN",
            *(f"INSERT INTO accounts VALUES ({1001 + row}, 1, REPEAT('void', 40))" for row in range(20)),
            "DROP TEMPORARY TABLE held",
            "ROLLBACK",
        ):
            cursor.execute(work)


@pytest.mark.extended
def test_only_committed_rows_are_published_from_any_slices_and_windows(
    either: Feed, spark_connect: SparkConnectServer
) -> None:
    feed = either
    feed.settings["spark"] = {"connect": spark_connect.url, "slice_bytes": 3_000}
    feed.configure()
    prepare(feed, "early", "INSERT INTO accounts VALUES (2000, 1, 'early')")
    prepare(feed, "never", "INSERT INTO accounts VALUES (2001, 1, 'never')")
    prepare(feed, "soon", "INSERT INTO accounts VALUES (2002, 1, 'soon')")
    roll_back_transactions(feed)
    feed.mysql.execute("XA COMMIT 'soon'", "FLUSH BINARY LOGS")
    feed.write(5)
    feed.run(spark=True)
    kept = feed.mysql.execute(f"SELECT id FROM `{feed.name}`.accounts WHERE id > 99")
    assert {key for (key,) in kept} == {1000, 2002}
    feed.check()
    feed.mysql.execute("XA ROLLBACK 'never'")
    prepare(feed, "never", "INSERT INTO accounts VALUES (2003, 1, 'the same xid again')")
    feed.mysql.execute("XA COMMIT 'early'", "FLUSH BINARY LOGS", "XA COMMIT 'never'")
    feed.run(spark=True)
    feed.check()
    first, second = sorted(windows(feed), key=lambda window: int(window["window"]["number"]))
    assert second["rows"] == {f"{feed.name}.accounts": {"c": 2}}, "only its committed rows"
    dropped = sum(topic["dropped"].get("rolled_back", 0) for topic in first["topics"])
    early, never = (f"X'{xid.encode().hex()}',X'',1" for xid in ("early", "never"))
    assert (first["prepared"], second.get("prepared")) == ([early, never], None), "the manifest names what is in doubt"
    assert dropped == (40 if isinstance(feed.mysql, MariadbServer) else 0)


@pytest.mark.extended
def test_savepoints_that_mariadb_takes_for_one_stop_the_run(mariadb_feed: Feed) -> None:
    feed = mariadb_feed
    feed.write(3)
    feed.run()
    ids = feed.ids()
    with feed.mysql.connect(database=feed.name, autocommit=True) as connection, connection.cursor() as cursor:
        for work in (
            "BEGIN",
            "SAVEPOINT `é`",
            "INSERT INTO accounts VALUES (1000, 1, 'stays')",
            "SAVEPOINT `E`",
            "INSERT INTO accounts VALUES (1001, 1, 'goes')",
            "CREATE TEMPORARY TABLE held (id INT)",
            "ROLLBACK TO `É`",
            "COMMIT",
        ):
            cursor.execute(work)
    assert feed.mysql.execute(f"SELECT id FROM `{feed.name}`.accounts WHERE id > 999") == [(1000,)]
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "may be 'e' to the server" in run.text()
    assert "seek the pipeline to a position after that transaction" in run.text()
    assert feed.ids() == ids


def windows(feed: Feed) -> list[dict[str, Any]]:

    return list(json.loads(feed.command("windows", feed.name, "--json").stdout))


def test_a_window_of_one_slice_leaves_them_out_too(either: Feed) -> None:
    feed = either
    feed.write(5)
    roll_back_transactions(feed)
    prepare(feed, "soon", "INSERT INTO accounts VALUES (2002, 1, 'soon')")
    prepare(feed, "never", "INSERT INTO accounts VALUES (2001, 1, 'never')")
    feed.mysql.execute("XA COMMIT 'soon'", "XA ROLLBACK 'never'")
    feed.run()
    feed.check()


@pytest.fixture
def own_mariadb(session_folder: Path, unique_name: str) -> Iterator[MariadbServer]:
    """A server whose binlog the test may purge and truncate."""
    with run_server(MariadbServer(session_folder / unique_name, owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture
def own_feed(
    own_mariadb: MariadbServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    with fresh_feed(own_mariadb, kafka_broker, unique_name, tmp_path, runner) as feed:
        yield feed


@pytest.mark.extended
def test_an_xa_commit_whose_prepare_was_purged_stops_the_run_and_says_so(
    own_mariadb: MariadbServer, own_feed: Feed
) -> None:
    server, feed = own_mariadb, own_feed
    prepare(feed, "old", "INSERT INTO accounts VALUES (1, 1, 'old')")
    server.execute("FLUSH BINARY LOGS", "SET GLOBAL slave_connections_needed_for_purge = 0")
    file, position, *_ = server.execute("SHOW MASTER STATUS")[0]
    for _ in range(100):  # the server keeps the file while a checkpoint of InnoDB may need it
        server.execute(f"PURGE BINARY LOGS TO '{file}'")
        if server.execute("SHOW BINARY LOGS")[0][0] == file:
            break
        time.sleep(0.1)
    server.execute("XA COMMIT 'old'")
    feed.settings["start"] = f"{file}:{position}"
    feed.configure()
    run = feed.begin()
    assert run.result() == 2
    assert "XA PREPARE is not in the binlog" in run.text()
    assert "seek the pipeline to a position after that XA COMMIT" in run.text()


@pytest.mark.extended
def test_a_file_that_ends_inside_a_transaction_ends_with_none_of_its_rows_published(
    own_mariadb: MariadbServer, own_feed: Feed, spark_connect: SparkConnectServer
) -> None:
    server, feed = own_mariadb, own_feed
    feed.write(5)
    name = server.execute("SHOW MASTER STATUS")[0][0]
    server.execute("BEGIN", "INSERT INTO journal (text) VALUES ('a'), ('b')", "COMMIT", database=feed.name)
    server.kill()
    path = server.data / name
    data = path.read_bytes()
    path.write_bytes(data[: last(data, EventType.XID)])
    server.start()
    # As InnoDB does if a transaction is not completely in the binlog.
    server.execute("SET sql_log_bin = 0", "DELETE FROM journal WHERE text IN ('a', 'b')", database=feed.name)
    feed.use_connect(spark_connect.url)
    feed.run(spark=True)
    feed.check()
    feed.write(5)
    feed.run()
    feed.check()


def last(data: bytes, kind: int) -> int:
    """The start of the last event of a kind."""
    at, found = 4, 0
    while at < len(data):
        _, event, _, size, _, _ = HEADER.unpack_from(data, at)
        found = at if event == kind else found
        at += size
    return found


@pytest.mark.extended
def test_reference_reader_leaves_out_rolled_back_rows(mariadb_feed: Feed, spark_connect: SparkConnectServer) -> None:
    feed = mariadb_feed
    plain = {"decimal": "string", "temporal": "iso", "binary": "base64", "bigint_unsigned": "number"}
    feed.settings |= {"reader": "reference", "values": plain}
    feed.use_connect(spark_connect.url)
    roll_back_transactions(feed)
    feed.run(spark=True)
    feed.check()
