"""The binlog at the checkpoint was replaced: always a terminal error with a remedy."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.existing_rows import finish
from faults.feed import Feed, Runner
from faults.replica import replicate, wait_until_caught_up
from faults.test_verify import connections_of
from long_form import long

from changefeed.errors import BinlogGoneError
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import Plan, plan
from changefeed.state.table_store import TableCheckpointStore
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def own(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner, request: pytest.FixtureRequest
) -> Iterator[Feed]:
    """A feed on its own server, without other tests' events; a parameter has the server's options."""
    options = dict(getattr(request, "param", {}))
    with run_server(MysqlServer(tmp_path / "own", options=options, owner=ProcessId.own(), quick=True)) as server:
        yield Feed(unique_name, server, kafka_broker, tmp_path, runner)


@pytest.fixture
def own_mariadb(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner, request: pytest.FixtureRequest
) -> Iterator[Feed]:
    """As `own`, on MariaDB; a parameter is its release."""
    release = getattr(request, "param", MariadbServer.default_release)
    with run_server(MariadbServer(tmp_path / "own", release=release, owner=ProcessId.own(), quick=True)) as server:
        yield Feed(unique_name, server, kafka_broker, tmp_path, runner)


def refused(feed: Feed, *words: str) -> None:
    """Check that the next run fails with a terminal error that has these words, and publishes nothing."""
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == 2, run.text()
    for word in words:
        assert word.casefold() in run.text().casefold()
    assert feed.ids() == ids


@pytest.mark.extended
def test_renumbered_binlog_is_refused(own: Feed) -> None:
    own.write(5)
    own.run()
    own.mysql.execute("RESET BINARY LOGS AND GTIDS")
    for _ in range(3):
        own.write(40)
        own.mysql.execute("FLUSH BINARY LOGS")
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        own.write(5)
    refused(own, "BinlogGoneError", "seek")


@pytest.mark.extended
@pytest.mark.parametrize("own", [{"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}], indirect=True)
def test_renumbered_binlog_with_equal_sizes_is_refused_without_gtids(own: Feed) -> None:
    inserts = [f"INSERT INTO `{own.name}`.journal (text) VALUES ('as long')"] * 20
    own.mysql.execute("RESET BINARY LOGS AND GTIDS", *inserts)
    own.settings["start"] = "binlog.000001:4"
    own.configure()
    own.run()
    own.mysql.execute("RESET BINARY LOGS AND GTIDS", *inserts, *inserts)
    refused(own, "BinlogGoneError", "begun at", "seek")


def test_purged_binlog_is_refused_and_its_remedy_deletes_lost_rows(
    own: Feed, spark_connect: SparkConnectServer, tmp_path: Path
) -> None:
    pets = f"`{own.name}`.pets"
    own.mysql.execute(
        f"CREATE TABLE {pets} (at DATETIME(3), code BINARY(3), name VARCHAR(9), note TEXT NOT NULL, "
        "PRIMARY KEY (name, at, code))",
        f"INSERT INTO {pets} VALUES ('2026-01-31 12:00:00.5', 'a', 'O''Hara', ''), (NOW(), '', 'stays', '')",
    )
    own.write(5)
    own.run()
    own.mysql.execute(
        f"DELETE FROM {pets} WHERE name <> 'stays'", f"DELETE FROM `{own.name}`.journal ORDER BY id LIMIT 2"
    )
    own.write(5)
    own.mysql.execute("FLUSH BINARY LOGS")
    (last, *_) = own.mysql.execute("SHOW BINARY LOG STATUS")[0]
    own.mysql.execute(f"PURGE BINARY LOGS TO '{last}'")
    refused(own, "BinlogGoneError", "is not on the server", last, "seek", "verify --gone")
    assert own.command("seek", own.name, "earliest", "--why", "a test", "--yes").returncode == 0
    finish(own)
    own.use_connect(spark_connect.url)
    script = tmp_path / "gone.sql"
    run_verify = own.command("verify", own.name, "--run", "--gone", str(script))
    assert run_verify.returncode == 4, run_verify.stderr + run_verify.stdout
    assert f"{own.name}.pets: 1 rows are in the topic only" in run_verify.stdout
    assert "changefeed verify --gone FILE" in run_verify.stdout
    statements = [each for line in script.read_text().splitlines() if line[:2] != "--" for each in line.split("; ")]
    own.mysql.execute(*statements)
    own.run()
    run_verify = own.command("verify", own.name, "--run", "--gone", str(script))
    assert run_verify.returncode == 0, run_verify.stderr + run_verify.stdout
    assert script.read_text() == ""
    *_, deleted, tombstone = [record for record in own.records("pets") if b"O'Hara" in record.key]
    assert json.loads(deleted.value)["op"] == "d"
    assert tombstone.value is None


@pytest.mark.extended
def test_a_changed_base_name_is_refused(own: Feed) -> None:
    own.write(5)
    own.run()
    own.mysql.restart({"log_bin": "renamed"})
    own.write(5)
    refused(own, "BinlogGoneError", "'renamed'", "log_bin was changed", "Seek")


@pytest.mark.extended
@pytest.mark.parametrize("written", [0, *long(1), 60], ids=["before the checkpoint", "a little", "past the checkpoint"])
@pytest.mark.parametrize(
    "own", [{}, {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}], ids=["gtids", "no gtids"], indirect=True
)
def test_a_server_restored_to_an_older_point_is_refused(own: Feed, written: int) -> None:
    own.write(5)
    own.mysql.stop()
    backup = own.folder / "backup"
    shutil.copytree(own.mysql.data, backup)
    own.mysql.start()
    (file, position, *_) = own.mysql.execute("SHOW BINARY LOG STATUS")[0]
    own.settings["start"] = f"{file}:{position}"
    own.configure()
    own.write(10)
    own.run()
    own.mysql.stop()
    shutil.rmtree(own.mysql.data)
    shutil.copytree(backup, own.mysql.data)
    own.mysql.start()
    if written:
        own.write(written)
    refused(own, "BinlogGoneError", "seek")


@pytest.mark.extended
@pytest.mark.parametrize("own", [{"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}], indirect=True)
def test_another_server_without_gtids_is_refused(own: Feed) -> None:
    own.write(5)
    own.run()
    own.mysql.stop()
    (own.mysql.data / "auto.cnf").unlink()  # the server makes itself a new server_uuid
    own.mysql.start()
    own.write(5)
    refused(own, "BinlogGoneError", "without GTIDs the position cannot be found again", "gtid_mode=ON")


@pytest.mark.extended
def test_a_replica_that_does_not_log_what_it_applies_is_refused(own: Feed, tmp_path: Path) -> None:
    """Its GTID set changes without events: changes would be lost silently."""
    options = {"server_id": 2, "log_replica_updates": "OFF"}
    with run_server(MysqlServer(tmp_path / "replica", options=options, owner=ProcessId.own(), quick=True)) as replica:
        source, own.mysql = own.mysql, replica
        own.run()
        replicate(source, replica)
        wait_until_caught_up(source, replica)
        ((server_uuid,),) = source.execute("SELECT @@server_uuid")
        refused(own, "BinlogGoneError", server_uuid, "log_replica_updates=ON")
        replica.execute("STOP REPLICA", "RESET REPLICA ALL")
        replica.execute(f"INSERT INTO `{own.name}`.journal (text) VALUES ('its own')")
        refused(own, "BinlogGoneError", server_uuid, "does not log")


def insert_as(feed: Feed, variable: str, text: str) -> None:
    """Insert a row in a session with a GTID variable of MariaDB."""
    feed.mysql.execute(f"SET SESSION {variable}", f"INSERT INTO journal (text) VALUES ('{text}')", database=feed.name)


@pytest.mark.extended
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_falling_mariadb_numbers_are_of_the_same_binlog(own_mariadb: Feed, start: str) -> None:
    """As on a replica with gtid_strict_mode=OFF, the default, after an ANALYZE TABLE of its own."""
    feed = own_mariadb
    if start == "earliest":
        feed.write(10)
    else:
        feed.settings["start"] = start
        feed.configure()
    feed.run_until_current()
    insert_as(feed, "gtid_seq_no = 1000", "ahead")
    feed.run()
    for number in (2, 2, 3):
        insert_as(feed, f"gtid_seq_no = {number}", "lower")
        feed.run()
    insert_as(feed, "gtid_seq_no = 2", "in another file")
    feed.mysql.execute("FLUSH BINARY LOGS")
    feed.write(60)
    run = feed.begin("after_transaction_commit")
    assert run.wait_until_held()
    run.kill()
    insert_as(feed, "gtid_seq_no = 2", "after a kill")
    feed.run_until_current()
    feed.check()


@pytest.mark.extended
def test_domain_deleted_on_mariadb_is_not_a_loss(own_mariadb: Feed) -> None:
    feed, execute = own_mariadb, own_mariadb.mysql.execute
    feed.write(3)
    insert_as(feed, "gtid_domain_id = 7", "of domain 7")
    execute("FLUSH BINARY LOGS", "SET GLOBAL slave_connections_needed_for_purge = 0")
    feed.run_until_current()
    ((file, *_),) = execute("SHOW MASTER STATUS")
    for _ in range(100):  # it keeps the file while a checkpoint of InnoDB may need it
        execute(f"PURGE BINARY LOGS TO '{file}'")
        if execute("SHOW BINARY LOGS")[0][0] == file:
            break
        time.sleep(0.1)
    execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (7)")
    feed.write(3)
    feed.run_until_current()
    (window, *_) = json.loads(feed.command("windows", feed.name, "--json").stdout)
    assert not [gtid for gtid in window["gtids"].split(",") if gtid.startswith("7-")], "a failover asks for no domain 7"
    feed.write(3)
    feed.run_until_current()
    feed.check()


@pytest.mark.extended
def test_mariadb_reset_is_detected_by_position_without_a_sealed_window(own_mariadb: Feed) -> None:
    feed = own_mariadb
    feed.write(10)
    feed.settings["start"] = "latest"
    feed.configure()
    feed.run()
    (at,) = [row[:2] for row in feed.mysql.execute("SHOW MASTER STATUS")]
    feed.mysql.execute(f"DROP TABLE `{feed.name}`.accounts, `{feed.name}`.journal", "RESET MASTER")
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.other (id INT AUTO_INCREMENT PRIMARY KEY)")
    while feed.mysql.execute("SHOW MASTER STATUS")[0][:2] <= at:
        feed.mysql.execute(f"INSERT INTO `{feed.name}`.other VALUES (NULL)")
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "binlog of this server is another one" in run.text()
    assert "seek" in run.text().casefold()


def begin_old_file(feed: Feed) -> None:
    """Begin the binlog anew, with a first file that was begun a minute ago, as its first event says."""
    feed.mysql.execute("SET timestamp = UNIX_TIMESTAMP() - 60", "RESET MASTER")


def insert(feed: Feed, transactions: int, first: int = 1) -> None:
    """Insert rows, each in a transaction of the same size, with GTIDs numbered from ``first``."""
    feed.mysql.execute(
        f"SET SESSION gtid_seq_no = {first}",
        *[f"INSERT INTO `{feed.name}`.journal (text) VALUES ('as long')"] * transactions,
    )


def plan_and_count(feed: Feed, connections: PipelineConnections) -> tuple[Plan, int]:
    """A plan, and how often it let MariaDB compute a GTID position."""
    feed.mysql.execute(
        *("SET sql_log_bin = OFF", "TRUNCATE mysql.general_log"),
        *("SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = ON"),
    )
    planned = plan(connections, TableCheckpointStore(f"sqlite:///{feed.state}"))
    feed.mysql.execute("SET GLOBAL general_log = OFF")
    assert count_logged(feed, "SHOW BINARY LOGS") == 1
    return planned, count_logged(feed, "SELECT BINLOG_GTID_POS(")


def count_logged(feed: Feed, begin: str) -> int:
    """The number of statements in MariaDB's general log that begin so."""
    where = f"LEFT(argument, {len(begin)}) = '{begin}'"
    return int(feed.mysql.execute(f"SELECT COUNT(*) FROM mysql.general_log WHERE {where}")[0][0])


@pytest.mark.extended
@pytest.mark.parametrize("own_mariadb", ["10.11", *long("11.4")], indirect=True)
def test_plans_of_one_process_let_mariadb_read_a_file_once(own_mariadb: Feed) -> None:
    """Before MariaDB 11.4 the server reads the file up to a position whose GTIDs it computes."""
    feed, connections = own_mariadb, connections_of(own_mariadb)
    begin_old_file(feed)
    insert(feed, 5)
    feed.run()
    counts = []
    for number in range(6, 11):
        insert(feed, 1, number)
        planned, count = plan_and_count(feed, connections)
        assert planned.window.head_gtids == f"0-1-{number}"
        counts.append(count)
        feed.run()
        assert plan_and_count(feed, connections)[0].is_empty
    assert counts == [1, 0, 0, 0, 0]
    feed.mysql.execute("FLUSH BINARY LOGS")
    insert(feed, 1, 11)
    assert plan_and_count(feed, connections)[1] == 0
    feed.run()
    insert(feed, 1, 12)
    assert plan_and_count(feed, connections)[1] == 1, "a file begun in the same second would have the same identity"
    feed.run_until_current()
    feed.check()


@pytest.mark.extended
@pytest.mark.parametrize("own_mariadb", ["10.11", *long("11.4")], indirect=True)
@pytest.mark.parametrize(
    ("move", "first", "words"), [("run", 1, "begun at"), ("seek", 1000, "binlog of this server is another one")]
)
def test_mariadb_reset_between_two_plans_of_a_process_is_refused(
    own_mariadb: Feed, move: str, first: int, words: str
) -> None:
    """The new binlog has transactions of the same sizes, and after a run also of the same numbers."""
    feed, connections = own_mariadb, connections_of(own_mariadb)
    begin_old_file(feed)
    insert(feed, 5)
    feed.run()
    for number in (6, 7):
        insert(feed, 1, number)
        planned, _ = plan_and_count(feed, connections)
        if move == "run" or number == 6:
            feed.run()
    if move == "seek":  # no window ends at the checkpoint
        assert feed.command("seek", feed.name, "latest", "--why", "a test", "--yes").returncode == 0
    idle, count = plan_and_count(feed, connections)
    assert (idle.is_empty, idle.start, count) == (True, planned.window.head, 0)
    feed.mysql.execute("RESET MASTER")
    insert(feed, 14, first)
    assert feed.mysql.execute("SHOW MASTER STATUS")[0][:2] > (idle.start.file, idle.start.position)
    with pytest.raises(BinlogGoneError, match=words):
        plan_and_count(feed, connections)
    refused(feed, "BinlogGoneError", words, "seek")
