"""A snapshot whose source is replaced, or has no GTIDs: it continues with the pipeline, or is refused."""

from __future__ import annotations

import json

import pytest
from both_settings import on_stock_servers_first
from faults.conftest import Pair
from faults.existing_rows import ROWS, begin, finish, prepare, reads
from faults.feed import Feed
from faults.replica import stop_replicating, wait_until_caught_up
from integration.topic_rows import select_rows

from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@on_stock_servers_first
@pytest.mark.parametrize("pair", [MysqlServer, MariadbServer], indirect=True, ids=["mysql", "mariadb"])
def test_snapshot_continues_on_another_server_after_the_pipelines_failover(
    pair: Pair, pair_feed: Feed, spark_connect: SparkConnectServer
) -> None:
    source, follower = pair
    feed = prepare(pair_feed, "numbers")
    run = begin(feed, "--connections", "1", "--chunk-rows", "100", fault="after_decode:2")
    assert run.wait_until_held(), run.text()
    source.execute(f"UPDATE `{feed.name}`.numbers SET version = version + 1 WHERE id MOD 3 = 0")
    run.kill()
    there = len(reads(feed, "numbers"))
    assert 0 < there < ROWS
    wait_until_caught_up(source, follower)
    source.stop()
    stop_replicating(follower)
    feed.mysql = follower
    assert (early := begin(feed)).result() == 1
    assert "Run the pipeline" in early.text()
    feed.run_until_current()
    feed.use_connect(spark_connect.url)
    finish(feed)
    feed.mysql.execute(f"UPDATE `{feed.name}`.numbers SET version = version + 1 WHERE id MOD 5 = 0")
    feed.run_until_current()
    latest = {record.key: json.loads(record.value)["after"] for record in feed.records("numbers")}
    assert sorted(map(str, latest.values())) == sorted(map(str, select_rows(follower, feed.name, "numbers").values()))
    keys = [row["id"] for row in reads(feed, "numbers")]
    assert there < len(keys) == len(set(keys)) <= ROWS


@pytest.mark.long
@pytest.mark.parametrize("pair", [MysqlServer, MariadbServer], indirect=True, ids=["mysql", "mariadb"])
def test_server_without_changes_of_left_out_rows_is_refused(pair: Pair, pair_feed: Feed) -> None:
    """On MariaDB the new server has a transaction of the same number, of its own."""
    source, follower = pair
    feed = prepare(pair_feed, "numbers")
    wait_until_caught_up(source, follower)
    run = begin(feed, fault="after_decode")
    assert run.wait_until_held(), run.text()
    stop_replicating(follower)
    source.execute(f"UPDATE `{feed.name}`.numbers SET version = 2 WHERE id = 5")
    run.go_on()
    assert run.result() == 0, run.text()
    assert len(reads(feed, "numbers")) == ROWS - 1
    source.stop()
    feed.mysql = follower
    follower.execute(f"UPDATE `{feed.name}`.numbers SET version = 3 WHERE id = 6")
    refused = feed.begin()
    assert refused.result() == (2 if isinstance(source, MariadbServer) else 1), refused.text()
    assert "left out rows" in refused.text()
    assert "does not have transactions" in refused.text()
