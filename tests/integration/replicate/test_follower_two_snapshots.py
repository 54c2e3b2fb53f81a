"""A follower is filled by several snapshots, by one whose tables are altered meanwhile, and in one of its databases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from integration.replicate.test_follower_filled import Filled, filled, on_mariadb, on_mysql
from long_form import long

from changefeed.errors import SchemaError
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.spark.connect import connect_session
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.extended

__all__ = ["filled"]


def rows_of(filled: Filled) -> str:
    """The larger of two keyed tables, beside one without a key, all with rows from before the pipeline."""
    name = f"{filled.name}_a"
    numbers = [f"({number}, {number % 5})" for number in range(200)]
    filled.source.execute(
        f"CREATE DATABASE {name}",
        f"CREATE DATABASE {filled.name}_b",
        f"CREATE TABLE {name}.many (id INT PRIMARY KEY, n INT)",
        f"CREATE TABLE {name}.gone (id INT PRIMARY KEY, n INT)",
        f"CREATE TABLE {name}.keyless (id INT, n INT)",
        f"CREATE TABLE {filled.name}_b.few (id INT PRIMARY KEY, n INT)",
        *(
            f"INSERT INTO {table} VALUES {', '.join(numbers)}"
            for table in (f"{name}.many", f"{name}.gone", f"{name}.keyless", f"{filled.name}_b.few")
        ),
    )
    filled.publish()
    change(filled, 0)
    filled.publish()
    return name


def change(filled: Filled, number: int) -> None:
    name = f"{filled.name}_a"
    filled.source.execute(
        f"UPDATE {name}.many SET n = n + 1 WHERE id % 7 = {number % 7}",
        f"DELETE FROM {name}.many WHERE id = {number * 11 % 200}",
        f"INSERT INTO {name}.many VALUES ({1000 + number}, 0)",
        f"UPDATE {name}.keyless SET n = n + 1 WHERE id % 7 = {number % 7}",
        f"DELETE FROM {name}.keyless WHERE id = {number}",
        f"UPDATE {filled.name}_b.few SET n = n + 1 WHERE id % 5 = {number % 5}",
    )


@on_mysql
def test_second_snapshot_beside_the_first_and_third_after_both(filled: Filled) -> None:
    rng = random.Random(3)
    rows_of(filled)
    running: dict[str, Iterator[SnapshotRecord]] = {"1": filled.snapshot("1"), "2": filled.snapshot("2")}
    number = 0
    while running:
        run = rng.choice(sorted(running))
        if next(running[run], None) is None:
            del running[run]
        number += 1
        change(filled, number)
        if rng.random() < 0.6:
            filled.publish()
        if rng.random() < 0.6:
            filled.follow()
    filled.publish()
    assert filled.follow().waiting == ()
    filled.check()
    for _ in filled.snapshot("3"):
        change(filled, (number := number + 1))
        filled.publish()
        filled.follow()
    filled.publish()
    assert filled.follow().waiting == ()
    filled.check()


DEFINITIONS = {
    "altered": ["ALTER TABLE {0}.many ADD COLUMN more INT NOT NULL DEFAULT 4"],
    "dropped": ["DROP TABLE {0}.many"],
    "made again": ["DROP TABLE {0}.many", "CREATE TABLE {0}.many (id INT PRIMARY KEY, text VARCHAR(9))"],
    "renamed": ["RENAME TABLE {0}.many TO {0}.other"],
}


@pytest.mark.parametrize(
    ("becomes", "filled"),
    [("made again", "mysql"), ("renamed", "mariadb"), *long(("altered", "mysql"), ("dropped", "mariadb"))],
    indirect=["filled"],
)
def test_table_altered_while_rows_are_missing(filled: Filled, becomes: str) -> None:
    name = rows_of(filled)
    definitions = [definition.format(name) for definition in DEFINITIONS[becomes]]
    missing: list[str] = []
    with suppress(SchemaError):  # as the snapshot does not read such a table any further
        for _ in filled.snapshot("1"):
            if not missing:
                filled.publish()
                missing.extend(filled.follow().waiting)
                filled.source.execute(*definitions)
            filled.publish()
            filled.follow()
    assert f"{name}.many" in missing
    filled.publish()
    filled.follow()
    for _ in filled.snapshot("2"):
        filled.source.execute(f"UPDATE {filled.name}_b.few SET n = n + 1 WHERE id % 5 = 1")
        filled.publish()
        filled.follow()
    filled.publish()
    assert filled.follow().waiting == ()
    filled.check()


@pytest.mark.long
@on_mariadb
def test_one_of_two_databases_is_filled_by_a_snapshot_on_spark(
    filled: Filled, spark_connect: SparkConnectServer
) -> None:
    name = rows_of(filled)
    with connect_session(spark_connect.url) as filled.spark:
        for number, _ in enumerate(filled.snapshot(), 1):
            change(filled, number)
            filled.publish()
            filled.follow(databases=[name])
    filled.publish()
    assert filled.follow(databases=[name]).waiting == ()
    assert filled.databases(filled.follower) == [name]
    expected = {key: value for key, value in filled.tables(filled.source).items() if f"{name}" in key}
    assert filled.tables(filled.follower) == expected
