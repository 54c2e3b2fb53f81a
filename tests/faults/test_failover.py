"""The server behind the connection is another one: the position is found again by GTID, or a terminal error."""

from __future__ import annotations

import pytest
from both_settings import on_both_settings
from faults.conftest import Pair
from faults.feed import TABLES, Feed
from faults.replica import caught_up, replicate, stop_replicating
from faults.test_changed_between_attempts import add_partitions
from faults.test_verify import connections_of
from verified import verified

from changefeed.verify.report import summary
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.timeout(900)

KINDS = pytest.mark.parametrize("pair", [MysqlServer, MariadbServer], indirect=True, ids=["mysql", "mariadb"])


def write_in_domain_1(server: SqlServer, name: str, rows: int) -> None:
    """Transactions of MariaDB's second replication domain."""
    inserts = [f"INSERT INTO `{name}`.journal (text) VALUES ('domain 1')"] * rows
    server.execute("SET SESSION gtid_domain_id = 1", *inserts)


def refused(feed: Feed, *words: str) -> str:
    """The next run ends with a terminal error that has these words, and nothing was published; what it printed."""
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == 2, run.text()
    for word in words:
        assert word in run.text()
    assert feed.ids() == ids
    return run.text()


@on_both_settings
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
    caught_up(source, follower)
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
    report = verified(connections_of(pair_feed))
    assert report.outcome == "equal", summary(report)


def killed_at(feed: Feed, stage: str) -> None:
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()


@pytest.mark.extended
def test_a_failover_ends_a_window_by_the_settings_and_partitions_that_the_old_server_began_it_with(
    pair: Pair, pair_feed: Feed
) -> None:
    """What was published is known by topic-partition: with others, messages were skipped that nobody had got."""
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    before = {table: len(pair_feed.records(table)) for table in TABLES}
    pair_feed.write(60)
    killed_at(pair_feed, "after_transaction_commit:3")
    # A topic that got nothing of the window yet would get all of it by the new number of partitions.
    given = [table for table in TABLES if len(pair_feed.records(table)) > before[table]]
    assert given
    for table in given:
        add_partitions(pair_feed, table, 5)
    pair_feed.settings["tombstones"] = False
    pair_feed.configure()
    caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    refused(pair_feed, "`tombstones` of the pipeline's settings changed")
    del pair_feed.settings["tombstones"]
    pair_feed.configure()
    pair_feed.run()
    pair_feed.check(one_server=False)
    for table in given:
        assert {record.partition for record in pair_feed.records(table)} == {0, 1}


@pytest.mark.extended
def test_a_failover_that_published_nothing_can_be_gone_back_from_and_done_again(pair: Pair, pair_feed: Feed) -> None:
    """The old server gives more of its window meanwhile: what the new one skips is known anew."""
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    pair_feed.write(60)
    killed_at(pair_feed, "after_transaction_commit:2")
    caught_up(source, follower)
    pair_feed.mysql = follower
    killed_at(pair_feed, "after_take_over")
    pair_feed.mysql = source
    killed_at(pair_feed, "after_transaction_commit:2")
    caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.check(one_server=False)


@pytest.mark.extended
@KINDS
def test_a_new_server_that_lacks_what_was_published_is_a_terminal_error(pair: Pair, pair_feed: Feed) -> None:
    """Also when it went on: 0-2-14 of MariaDB says nothing of 0-1-11."""
    source, follower = pair
    pair_feed.write(5)
    caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.mysql = follower
    refused(pair_feed, "BinlogGoneError", "lacks transactions", "seek")
    pair_feed.write(20)
    refused(pair_feed, "BinlogGoneError", "lacks transactions", "seek")
    follower.execute("FLUSH BINARY LOGS")  # the newest file begins behind all of them
    pair_feed.write(5)
    refused(pair_feed, "BinlogGoneError", "lacks transactions", "seek")


@pytest.mark.extended
@KINDS
def test_a_half_published_window_that_the_new_server_lacks_is_a_terminal_error(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.write(30)
    run = pair_feed.begin("after_transaction_commit:3")
    assert run.wait_until_held(), run.text()
    run.kill()
    pair_feed.mysql = follower
    pair_feed.write(40)
    refused(pair_feed, "AccountingError", "published in part", "lacks")


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True)
def test_each_of_mariadbs_domains_is_proved(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.write(10)
    write_in_domain_1(source, pair_feed.name, 5)
    pair_feed.write(10)
    pair_feed.run()
    caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    pair_feed.write(10)
    write_in_domain_1(follower, pair_feed.name, 5)
    pair_feed.run()
    pair_feed.check(one_server=False)
    replicate(follower, source)
    caught_up(follower, source)
    stop_replicating(source)
    write_in_domain_1(follower, pair_feed.name, 2)
    pair_feed.run()
    write_in_domain_1(source, pair_feed.name, 4)
    pair_feed.mysql = source
    refused(pair_feed, "BinlogGoneError", "lacks transactions 1-2-12")


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True)
def test_a_replica_that_logged_an_analyze_of_its_own_is_not_said_to_lack_what_it_has(
    pair: Pair, pair_feed: Feed
) -> None:
    source, follower = pair
    pair_feed.write(5)
    pair_feed.run()
    caught_up(source, follower)
    follower.execute(f"ANALYZE TABLE {pair_feed.name}.accounts", f"ANALYZE TABLE {pair_feed.name}.journal")
    pair_feed.write(1)
    caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.run()
    pair_feed.mysql = follower
    run = refused(pair_feed, "BinlogGoneError", "behind a higher number", "gtid_strict_mode", "ANALYZE TABLE", "seek")
    assert "lacks" not in run


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True, ids=["mariadb"])
@pytest.mark.parametrize("more", [0, 5])
def test_checkpoint_behind_what_mariadb_rolled_back_is_refused_on_a_replica(
    pair: Pair, pair_feed: Feed, more: int
) -> None:
    """The source logs such a transaction and its replica does not: by GTIDs it looks as if the replica was behind."""
    source, follower = pair
    pair_feed.write(10)
    pair_feed.run()
    held = f"CREATE TEMPORARY TABLE `{pair_feed.name}`.held (n INT)"
    insert = f"INSERT INTO `{pair_feed.name}`.journal (text) VALUES ('rolled back')"
    source.execute("BEGIN", held, insert, "ROLLBACK")
    pair_feed.run()
    caught_up(source, follower)
    stop_replicating(follower)
    pair_feed.mysql = follower
    pair_feed.write(more)
    refused(pair_feed, "BinlogGoneError", "lacks transactions", "seek")
    pair_feed.mysql = source
    source.execute(f"INSERT INTO `{pair_feed.name}`.journal (text) VALUES ('more')")
    pair_feed.run()
