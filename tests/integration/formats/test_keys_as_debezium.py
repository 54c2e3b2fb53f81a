"""Records of tables without a primary key, and of values that servers show otherwise, by windows and by snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.command import Command
from integration.command_forks import CommandForks

from devstack.kafka import KafkaBroker
from devstack.spark_connect import SparkConnectServer


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def changefeed(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    spark_connect: SparkConnectServer,
    forks: CommandForks,
) -> Iterator[Command]:
    server = request.getfixturevalue(request.param)
    server.execute(f"CREATE DATABASE `{unique_name}`")
    spark = f"{{connect: '{spark_connect.url}'}}"
    yield Command(tmp_path, unique_name, unique_name, server, kafka_broker, server_id, spark, forks, mask="")
    server.execute(f"DROP DATABASE `{unique_name}`")


def records(changefeed: Command, table: str) -> list[tuple[Any, str, Any]]:
    """Key, op and row of each record but tombstones."""
    found = []
    for record in changefeed.records(table):
        value = record.value and json.loads(record.value)
        if value:
            key = json.loads(record.key) if record.key else None
            found.append((key, value["op"], value["after"] or value["before"]))
    return found


def test_keys_and_values_are_the_same_in_windows_and_snapshots(changefeed: Command) -> None:
    name, server, database = changefeed.name, changefeed.server, changefeed.database
    year = "YEAR(2)" if server.product == "MariaDB" else "YEAR"
    server.execute(
        "CREATE TABLE u (a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE aa (c), UNIQUE z (b), UNIQUE y (a))",
        "CREATE TABLE k (a INT NOT NULL, b INT NOT NULL, UNIQUE z (b))",
        "CREATE TABLE v (id INT PRIMARY KEY, e ENUM('x😀', 'b?c', '🎉') CHARACTER SET utf8mb4 NOT NULL, "
        f"y {year}, d DOUBLE(10,2))",
        "INSERT INTO u VALUES (1, 10, 5), (2, 20, NULL)",
        "INSERT INTO v VALUES (1, 'x😀', 26, -0.01), (2, 'b?c', 0, 5), (3, '🎉', 99, 1.1)",
        database=database,
    )
    assert changefeed("run", name).exit_code == 3
    server.execute(
        "UPDATE u SET c = 7 WHERE a = 2",
        "INSERT INTO u VALUES (3, 30, 3)",
        "UPDATE v SET d = d - 1",
        "UPDATE v SET d = d + 1",
        "UPDATE v SET e = 'x😀' WHERE id = 3",
        database=database,
    )
    ran = changefeed("run", name)
    assert ran.exit_code == 0, ran
    assert sorted((key["b"], op) for key, op, _ in records(changefeed, "u")) == [(20, "u"), (30, "c")]
    in_window = {row["id"]: row for _, _, row in records(changefeed, "v")}
    taken = changefeed("snapshot", name)
    assert taken.exit_code == 0, taken
    read = [(key, row) for key, op, row in records(changefeed, "u") if op == "r"]
    assert sorted((key["b"], row["a"]) for key, row in read) == [(10, 1), (20, 2), (30, 3)]
    in_snapshot = {row["id"]: row for _, op, row in records(changefeed, "v") if op == "r"}
    assert in_snapshot == in_window
    assert [(row["e"], row["y"], row["d"]) for _, row in sorted(in_window.items())] == [
        ("x😀", 2026, -0.01),
        ("b?c", 2000 if year == "YEAR(2)" else 0, 5.0),
        ("x😀", 1999, 1.1),
    ]
    server.execute("DELETE FROM u WHERE a = 1", "UPDATE u SET b = 31 WHERE a = 3", database=database)
    assert changefeed("run", name).exit_code == 0
    changed = {(key["b"], op) for key, op, _ in records(changefeed, "u")}
    assert changed >= {(10, "d"), (30, "d"), (31, "c")}
    verified = changefeed("verify", name)
    assert verified.exit_code == 0, verified

    server.execute(
        "INSERT INTO k VALUES (1, 2)",
        "ALTER TABLE k ADD UNIQUE y (a)",
        "INSERT INTO k VALUES (2, 3)",
        "ALTER TABLE k DROP INDEX z",
        "INSERT INTO k VALUES (3, 4)",
        "ALTER TABLE k DROP INDEX y",
        "INSERT INTO k VALUES (4, 5)",
        "CREATE UNIQUE INDEX b ON k (b)",
        "INSERT INTO k VALUES (5, 6)",
        "ALTER TABLE k MODIFY b INT",
        "INSERT INTO k VALUES (6, 7)",
        database=database,
    )
    assert changefeed("run", name).exit_code == 0
    keys = {row["a"]: key for key, _, row in records(changefeed, "k")}
    assert keys == {1: {"b": 2}, 2: {"b": 3}, 3: {"a": 3}, 4: None, 5: {"b": 6}, 6: None}


def test_keyless_none_leaves_the_key_out(changefeed: Command) -> None:
    changefeed.write("keyless: none\n")
    changefeed.server.execute("CREATE TABLE u (a INT NOT NULL UNIQUE)", database=changefeed.database)
    assert changefeed("run", changefeed.name).exit_code == 3
    changefeed.server.execute("INSERT INTO u VALUES (1)", database=changefeed.database)
    assert changefeed("run", changefeed.name).exit_code == 0
    assert [key for key, _, _ in records(changefeed, "u")] == [None]
