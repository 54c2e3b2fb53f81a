"""Transactions of `provide.transaction.metadata` are complete by their records, over slices, kills and servers."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from faults.feed import TABLES, Feed
from integration.topic_rows import event_ids

from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

LARGEST = 200 + 4 + 2 * 4
"""Messages of the largest transaction: rows of `journal`, of `accounts`, and their changes of key."""

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


def numbered(feed: Feed, **spark: Any) -> None:
    feed.settings["format"] = {"name": "debezium", "provide.transaction.metadata": True}
    feed.settings["spark"] = {"master": "local[2]", **spark}
    feed.configure()


def write(feed: Feed) -> None:
    """Small transactions, and among them a large one of many statements; on MySQL a compressed one, too."""
    feed.write(10)
    with feed.mysql.connect(database=feed.name, autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(200):
            cursor.execute("INSERT INTO journal (text) VALUES (REPEAT('x', 90))")
            if number % 50 == 0:
                cursor.execute("INSERT INTO accounts VALUES (%s, 1, 'huge')", (1000 + number,))
        cursor.execute("UPDATE accounts SET id = id + 5000 WHERE id >= 1000")
        connection.commit()
        if isinstance(feed.mysql, MysqlServer):
            cursor.execute("SET SESSION binlog_transaction_compression = ON")
            cursor.execute("INSERT INTO journal (text) VALUES ('a'), ('b')")
            cursor.execute("DELETE FROM accounts WHERE id >= 6000")
            connection.commit()
    feed.write(10)


def check_whole(feed: Feed) -> int:
    """Each transaction is begun and ended, and has as many messages as its end says, numbered without a gap; the
    number of messages of the largest one."""
    orders: dict[str, list[int]] = defaultdict(list)
    of_tables: dict[tuple[str, str], list[int]] = defaultdict(list)
    for table in TABLES:
        for record in feed.records(table):
            if record.value is not None:
                where: dict[str, Any] = json.loads(record.value)["transaction"]
                orders[where["id"]].append(where["total_order"])
                of_tables[where["id"], f"{feed.name}.{table}"].append(where["data_collection_order"])
    records = feed.records("transaction")
    assert len(set(event_ids(records))) == len(records)
    records_read = [json.loads(record.value) for record in records]
    assert [json.loads(record.key) for record in records] == [{"id": each["id"]} for each in records_read]
    begun, ended = records_read[::2], records_read[1::2]
    assert {each["status"] for each in begun} == {"BEGIN"}
    assert [each["id"] for each in begun] == [each["id"] for each in ended]
    assert orders.keys() <= {each["id"] for each in ended}
    for end in ended:
        assert end["status"] == "END"
        assert sorted(orders[end["id"]]) == list(range(1, end["event_count"] + 1)), end
        counted = {each["data_collection"]: each["event_count"] for each in end["data_collections"]}
        found = {table: numbers for (of, table), numbers in of_tables.items() if of == end["id"]}
        assert {table: len(numbers) for table, numbers in found.items()} == counted, end
        assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in found.values()), end
    return max(end["event_count"] for end in ended)


@pytest.mark.parametrize("kind", ["feed", "mariadb_feed"])
def test_kill_while_publishing_leaves_complete_transactions(kind: str, request: pytest.FixtureRequest) -> None:
    feed: Feed = request.getfixturevalue(kind)
    numbered(feed)
    write(feed)
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    feed.write(5)
    run.kill()
    feed.run_until_current()
    feed.check()
    assert check_whole(feed) == LARGEST


def test_a_transaction_larger_than_a_slice_is_numbered_by_one_task(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    numbered(feed, connect=spark_connect.url, slice_bytes=3_000)
    write(feed)
    run = feed.begin("before_seal", spark=True)
    assert run.wait_until_held(400), run.text()
    run.kill()
    feed.run_until_current(spark=True)
    feed.check()
    assert check_whole(feed) == LARGEST
