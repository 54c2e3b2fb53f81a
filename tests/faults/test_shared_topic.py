"""All tables of a pipeline in one topic with one partition: real Spark, several slices, a kill, and the next run."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from faults.feed import TABLES, Feed
from integration.topic_rows import event_ids, select_rows, topic_rows

from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


def test_kill_while_tables_share_a_partition_keeps_commit_order_without_repeats(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.settings["topics"] = {"template": "{pipeline}.all", "shared": True, "partitions": 1}
    feed.configure()
    for _ in range(3):  # three files are three slices
        feed.write(25)
        feed.mysql.execute("FLUSH BINARY LOGS")
    feed.write(10)
    run = feed.begin("after_transaction_commit:2", spark=True)
    assert run.wait_until_held(400), run.text()
    run.kill()
    held = len(feed.records("all"))
    feed.write(5)
    feed.use_connect(spark_connect.url)
    feed.run(spark=True)
    records = feed.records("all")
    assert 0 < held < len(records), "killed in the middle of the first window"
    assert max(Counter(event_ids(records)).values()) == 1
    at, sources = [], []
    for record in records:
        if record.value is not None:
            source = json.loads(record.value)["source"]
            at.append((int(source["file"].rpartition(".")[2]), int(source["pos"]), int(source["row"])))
            sources.append(source["table"])
    assert at == sorted(at), "out of binlog order"
    for table in TABLES:
        tombstones_too = [
            record
            for record in records
            if (record.value is None and table == "accounts")  # no row of the journal is deleted
            or (record.value is not None and json.loads(record.value)["source"]["table"] == table)
        ]
        assert topic_rows(tombstones_too) == select_rows(feed.mysql, feed.name, table), table


def test_rows_of_a_table_that_is_gone_do_not_go_to_another_tables_topic(feed: Feed) -> None:
    """Two tables of one name in two databases, of which one is dropped before the run."""
    other = f"{feed.name}_other"
    feed.settings["tables"] = {"include": [f"{feed.name}*.*"]}
    feed.settings["topics"] = {"template": f"{feed.name}.{{table}}"}
    feed.configure()
    feed.write(3)
    feed.run()
    feed.mysql.execute(
        f"CREATE DATABASE `{other}`",
        f"CREATE TABLE `{other}`.accounts LIKE `{feed.name}`.accounts",
        f"INSERT INTO `{other}`.accounts VALUES (1, 77, 'other')",
        f"DROP DATABASE `{other}`",
    )
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "collide" in run.text()
    assert "exclude one of the tables" in run.text()
    assert feed.ids() == ids
    feed.settings["tables"]["exclude"] = [f"{other}.*"]
    feed.configure()
    feed.run()
    feed.check()
