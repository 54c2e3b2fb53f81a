"""A pipeline's life on each release of MySQL and MariaDB that README names, with the server's default settings.

The killed run is a fork without Spark's JVM; all other runs are on the Spark Connect server that is up.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner, fresh_feed
from integration.random_tables import RandomTable, column_makers, labelled
from integration.topic_rows import select_rows, topic_rows

from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

RELEASES = ("mysql_57_server", "mysql_80_server", "mariadb_1011_server", "mariadb_118_server")
VALUES = {
    "decimal": "string",
    "temporal": "iso",
    "binary": "base64",
    "bigint_unsigned": "number",
    "documents": "text",
}
"""How `random_tables` reads values back."""
ROWS = 6

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture(params=RELEASES)
def feed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    """A feed whose table `existing` has rows from before the pipeline's start."""
    server: SqlServer = request.getfixturevalue(request.param)
    server.execute(
        f"CREATE DATABASE `{unique_name}`",
        f"CREATE TABLE `{unique_name}`.existing (id INT PRIMARY KEY, text VARCHAR(40))",
        f"INSERT INTO `{unique_name}`.existing VALUES (1, 'é'), (2, NULL), (3, 'x')",
    )
    with fresh_feed(server, kafka_broker, unique_name, tmp_path, runner) as fresh:
        fresh.settings |= {"values": VALUES, "format": {"name": "debezium", "skipped.operations": "none"}}
        fresh.configure()
        yield fresh


def test_release_publishes_types_alter_truncate_retry_and_snapshot(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    types = table_of_types(feed)
    feed.mysql.execute(types.create())
    checked = feed.fork_command("", "check", feed.name)
    assert checked.result() == 0, checked.text()
    change_rows_of(types, feed)
    feed.write(20)
    killed = feed.begin("after_transaction_commit")
    assert killed.wait_until_held(), killed.text()
    killed.kill()
    feed.write(5)
    feed.use_connect(spark_connect.url)
    run(feed)
    feed.check()
    check_types(types, feed)

    feed.mysql.execute(
        f"ALTER TABLE `{feed.name}`.accounts ADD COLUMN more INT NOT NULL DEFAULT 7 AFTER id",
        f"UPDATE `{feed.name}`.accounts SET more = id",
        f"ALTER TABLE `{feed.name}`.accounts DROP COLUMN version, MODIFY text VARCHAR(300)",
        f"UPDATE `{feed.name}`.accounts SET more = more + 1",
        f"TRUNCATE TABLE {types.qualified}",
    )
    run(feed)
    changes = [json.loads(record.value) for record in feed.records("accounts") if record.value is not None]
    last = {change["after"]["id"]: change["after"] for change in changes if change["after"] is not None}
    rows = select_rows(feed.mysql, feed.name, "accounts").values()
    assert [last[row["id"]] for row in rows] == list(rows)
    assert "t" in {json.loads(record.value)["op"] for record in feed.records("types")}

    snapshot = feed.fork_command("", "snapshot", feed.name, "--tables", f"{feed.name}.existing")
    assert snapshot.result() == 0, snapshot.text()
    run(feed)
    assert topic_rows(feed.records("existing")) == select_rows(feed.mysql, feed.name, "existing")
    run_verify = feed.fork_command("", "verify", feed.name)
    assert run_verify.result() == 0, run_verify.text()


def run(feed: Feed) -> None:
    """Execute `changefeed run` on the Connect server; it must succeed."""
    done = feed.fork_command("", "run", feed.name)
    assert done.result() in (0, 3), done.text()[-4000:]


def table_of_types(feed: Feed) -> RandomTable:
    """A table with two random columns of each kind that all releases know, and that SELECT shows as they are.

    Left out are labels in two bytes a character, which 5.7 shows wrong, and BIT, which `random_tables` reads as a
    number.
    """
    rng = random.Random(feed.mysql.release)
    makers = column_makers(isinstance(feed.mysql, MariadbServer))
    makers["labelled"] = lambda rng, name: labelled(rng, name, ["utf8mb4", "utf8mb3"])
    table = RandomTable(feed.name, "types")
    kinds = [maker for kind, maker in makers.items() if kind not in ("vector", "bit")] * 2
    table.columns += [maker(rng, f"c{number}") for number, maker in enumerate(kinds)]
    return table


def change_rows_of(types: RandomTable, feed: Feed) -> None:
    rng = random.Random(feed.mysql.release)
    with feed.mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for number in range(ROWS):
            cursor.execute(f"INSERT INTO {types.qualified} VALUES ({number}, {', '.join(types.literals(rng))})")
        for number in range(0, ROWS, 2):
            pairs = zip(types.columns, types.literals(rng), strict=True)
            changes = ", ".join(f"`{column.name}` = {literal}" for column, literal in pairs)
            cursor.execute(f"UPDATE {types.qualified} SET {changes} WHERE id = {number}")


def check_types(types: RandomTable, feed: Feed) -> None:
    """Check that the last value of each row in the topic is that of SELECT."""
    last = {}
    for record in feed.records("types"):
        number, values = types.seen(json.loads(record.value)["after"])
        last[number] = values
    with contextlib.closing(feed.mysql.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        rows = types.rows(cursor)
    assert len(rows) == ROWS
    for column in types.columns:
        published = {number: values[column.name] for number, values in last.items()}
        assert published == {number: values[column.name] for number, values in rows.items()}, column.definition
