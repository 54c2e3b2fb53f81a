"""The connection leads to another server: the run finds its position by GTID, or fails with a terminal error."""

from __future__ import annotations

import pytest
from both_settings import on_stock_servers_first
from faults.conftest import Pair
from faults.feed import TABLES, Feed
from faults.replica import replicate, stop_replicating, wait_until_caught_up
from faults.test_changed_between_attempts import add_partitions
from faults.test_verify import connections_of
from run_verify import run_verify

from changefeed.verify.report import summary
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.timeout(900)

KINDS = pytest.mark.parametrize("pair", [MysqlServer, MariadbServer], indirect=True, ids=["mysql", "mariadb"])


def write_in_domain_1(server: SqlServer, name: str, rows: int) -> None:
    """Write transactions in a second replication domain of MariaDB."""
    inserts = [f"INSERT INTO `{name}`.journal (text) VALUES ('domain 1')"] * rows
    server.execute("SET SESSION gtid_domain_id = 1", *inserts)


def refusal_of(feed: Feed, *words: str, is_terminal: bool = True) -> str:
    """Check that the next run fails with an error with these words and publishes nothing; return its output."""
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == (2 if is_terminal else 1), run.text()
    for word in words:
        assert word in run.text()
    assert feed.ids() == ids
    return run.text()


@on_stock_servers_first
@pytest.mark.parametrize(
    ("pair", "stage"),
    [
        pytest.param(MysqlServer, "", marks=pytest.mark.extended),
        (MysqlServer, "after_transaction_commit:3"),
        pytest.param(MysqlServer, "before_seal", marks=pytest.mark.extended),
        pytest.param(MariadbServer, "after_transaction_commit:3", marks=pytest.mark.extended),
    ],
    indirect=["pair"],
)
def test_after_a_failover_nothing_is_repeated_and_nothing_lost(
    pair: Pair, pair_feed: Feed, stage: str, spark_connect: SparkConnectServer
) -> None:
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    pair_feed.write(30)
    if stage:
        run = pair_feed.begin(stage)
        assert run.wait_until_held(), run.text()
        run.kill()
    wait_until_caught_up(source, follower)
    source.stop()
    stop_replicating(follower)
    pair_feed.mysql = follower
    pair_feed.write(10)
    pair_feed.use_connect(spark_connect.url)
    text = pair_feed.run(spark=True)
    assert "found again by GTID set" in text
    assert ("skipped by GTID" in text) == bool(stage), text
    pair_feed.check(one_server=False)
    pair_feed.write(10)
    pair_feed.run()
    pair_feed.check(one_server=False)
    assert '"failover"' in pair_feed.command("windows", pair_feed.name, "--json").stdout
    report = run_verify(connections_of(pair_feed))
    assert report.outcome == "equal", summary(report)


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MysqlServer], indirect=True, ids=["mysql"])
def test_source_with_several_hosts_fails_over_in_mid_window_by_itself(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.hosts = f"127.0.0.1:{source.port},127.0.0.1:{follower.port}"
    pair_feed.write(20)
    pair_feed.run()
    pair_feed.write(30)
    kill_at(pair_feed, "after_transaction_commit:3")
    wait_until_caught_up(source, follower)
    source.stop()
    stop_replicating(follower)
    pair_feed.mysql = follower  # writes go to the new source; the connection stays as it is
    pair_feed.write(10)
    text = pair_feed.run()
    assert "the next host of the source is tried" in text
    assert "found again by GTID set" in text
    assert "skipped by GTID" in text
    pair_feed.check(one_server=False)


def kill_at(feed: Feed, stage: str) -> None:
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()


@pytest.mark.extended
def test_failover_ends_a_window_with_the_settings_and_partitions_it_began_with(pair: Pair, pair_feed: Feed) -> None:
    """Progress is stored by topic-partition: with other partitions, unpublished messages would be skipped."""
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    before = {table: len(pair_feed.records(table)) for table in TABLES}
    pair_feed.write(60)
    kill_at(pair_feed, "after_transaction_commit:3")
    # A topic without messages of the window would get all of them with the new number of partitions.
    given = [table for table in TABLES if len(pair_feed.records(table)) > before[table]]
    assert given
    for table in given:
        add_partitions(pair_feed, table, 5)
    pair_feed.settings["tombstones"] = False
    pair_feed.configure()
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    refusal_of(pair_feed, "`tombstones` of the pipeline's settings changed")
    del pair_feed.settings["tombstones"]
    pair_feed.configure()
    pair_feed.run()
    pair_feed.check(one_server=False)
    for table in given:
        assert {record.partition for record in pair_feed.records(table)} == {0, 1}


@pytest.mark.long
@pytest.mark.extended
def test_a_failover_that_published_nothing_can_be_gone_back_from_and_done_again(pair: Pair, pair_feed: Feed) -> None:
    """The old server publishes more of its window meanwhile, so the new one must skip more."""
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    pair_feed.write(60)
    kill_at(pair_feed, "after_transaction_commit:2")
    wait_until_caught_up(source, follower)
    pair_feed.mysql = follower
    kill_at(pair_feed, "after_take_over")
    pair_feed.mysql = source
    kill_at(pair_feed, "after_transaction_commit:2")
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.check(one_server=False)


def behind(feed: Feed) -> None:
    """Check that the next run waits for a replica that is behind, or for the old server."""
    words = ("SourceUnavailableError", "does not have transactions", "when it has them", "seek")
    refusal_of(feed, *words, is_terminal=False)


def is_lost(feed: Feed) -> None:
    """Check that the next run stops, because the new server has transactions in place of published ones."""
    refusal_of(feed, "BinlogGoneError", "does not have transactions", "seek")


@pytest.mark.extended
@KINDS
def test_server_without_published_transactions_is_refused(pair: Pair, pair_feed: Feed) -> None:
    """Also after it has continued: MariaDB's 0-2-14 does not include 0-1-11, which the server never gets then."""
    source, follower = pair
    pair_feed.write(5)
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.mysql = follower
    refuse = behind if isinstance(source, MysqlServer) else is_lost
    behind(pair_feed)
    pair_feed.write(20)
    refuse(pair_feed)
    follower.execute("FLUSH BINARY LOGS")  # the newest file begins after all of them
    pair_feed.write(5)
    refuse(pair_feed)


@pytest.mark.extended
@KINDS
def test_partly_published_window_missing_on_the_new_server_is_refused(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.write(30)
    kill_at(pair_feed, "after_transaction_commit:3")
    pair_feed.mysql = follower
    behind(pair_feed)
    if isinstance(source, MariadbServer):
        pair_feed.write(40)
        refusal_of(pair_feed, "AccountingError", "published in part", "does not have")
    else:
        replicate(source, follower)
        wait_until_caught_up(source, follower)
        assert "skipped by GTID" in pair_feed.run()
        pair_feed.check(one_server=False)


@pytest.mark.long
@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True)
def test_each_of_mariadbs_domains_is_proved(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.write(10)
    write_in_domain_1(source, pair_feed.name, 5)
    pair_feed.write(10)
    pair_feed.run()
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    pair_feed.write(10)
    write_in_domain_1(follower, pair_feed.name, 5)
    pair_feed.run()
    pair_feed.check(one_server=False)
    replicate(follower, source)
    wait_until_caught_up(follower, source)
    stop_replicating(source)
    write_in_domain_1(follower, pair_feed.name, 2)
    pair_feed.run()
    write_in_domain_1(source, pair_feed.name, 4)
    pair_feed.mysql = source
    refusal_of(pair_feed, "BinlogGoneError", "does not have transactions 1-2-12")


@pytest.mark.long
@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True)
def test_replica_that_logged_its_own_analyze_misses_no_transaction(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.write(5)
    pair_feed.run()
    wait_until_caught_up(source, follower)
    follower.execute(f"ANALYZE TABLE {pair_feed.name}.accounts", f"ANALYZE TABLE {pair_feed.name}.journal")
    source.execute(f"INSERT INTO `{pair_feed.name}`.journal (text) VALUES ('one transaction')")
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.run()
    pair_feed.mysql = follower
    run = refusal_of(
        pair_feed, "BinlogGoneError", "after a higher or equal number", "gtid_strict_mode", "ANALYZE TABLE", "seek"
    )
    assert "does not have" not in run


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True, ids=["mariadb"])
@pytest.mark.parametrize("more", [0, 5])
def test_checkpoint_after_a_rollback_of_mariadb_is_refused_on_a_replica(pair: Pair, pair_feed: Feed, more: int) -> None:
    """The source logs such a transaction and its replica does not, so by GTIDs the replica seems to be behind."""
    source, follower = pair
    pair_feed.write(10)
    pair_feed.run()
    held = f"CREATE TEMPORARY TABLE `{pair_feed.name}`.held (n INT)"
    insert = f"INSERT INTO `{pair_feed.name}`.journal (text) VALUES ('rolled back')"
    source.execute("BEGIN", held, insert, "ROLLBACK")
    pair_feed.run()
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    pair_feed.write(more)
    if more:
        refusal_of(pair_feed, "BinlogGoneError", "does not have transactions", "seek")
    else:
        behind(pair_feed)
    pair_feed.mysql = source
    source.execute(f"INSERT INTO `{pair_feed.name}`.journal (text) VALUES ('more')")
    pair_feed.run()
