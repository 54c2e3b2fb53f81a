"""Columns that a pipeline's settings name are renamed by DDL inside a window."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from both_settings import on_stock_servers_first
from faults.feed import Feed
from integration.topic_rows import records_of

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.extended

NAMES = {"old": ("kind", "zone"), "new": ("sort", "area")}


@on_stock_servers_first
@pytest.mark.parametrize("names", ["old", "new"])
def test_columns_renamed_in_mid_window_are_known_by_old_and_new_names(
    feed: Feed, names: str, spark_connect: SparkConnectServer
) -> None:
    kind, zone = NAMES[names]
    table = f"{feed.name}.orders"
    feed.settings |= {
        "rows": {table: f"{kind} = 'a'"},
        "keys": {table: [zone]},
        "topics": {"partitions": 3, "routes": [{"match": table, "partition_by": [zone]}]},
    }
    feed.use_connect(spark_connect.url)
    feed.mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, kind VARCHAR(9), zone INT)")
    for begin, statement in (
        (0, f"ALTER TABLE {table} RENAME COLUMN kind TO sort, RENAME COLUMN zone TO area"),
        (20, f"ALTER TABLE {table} ADD COLUMN more INT FIRST, ALGORITHM = COPY"),
        (40, f"ALTER TABLE {table} DROP COLUMN more"),
    ):
        columns = ", ".join(("id", *NAMES["new" if begin else "old"]))
        rows = ", ".join(f"({number}, '{'ab'[number % 2]}', {number % 5})" for number in range(begin, begin + 20))
        feed.mysql.execute(f"INSERT INTO {table} ({columns}) VALUES {rows}", "FLUSH BINARY LOGS", statement)
    feed.run()
    records = records_of(feed.kafka.bootstrap, table)
    published = {json.loads(record.value)["after"]["id"] for record in records}
    assert published == {number for (number,) in feed.mysql.execute(f"SELECT id FROM {table} WHERE sort = 'a'")}
    assert len(records) == len(published)
    assert {name for record in records for name in json.loads(record.key)} == {"zone", "area"}
    partitions = defaultdict(set)
    for record in records:
        partitions[record.key].add(record.partition)
    assert [key for key, found in partitions.items() if len(found) > 1] == []
    assert len({record.partition for record in records}) > 1
