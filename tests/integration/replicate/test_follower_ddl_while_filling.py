"""A follower that a snapshot fills, while DDL, other snapshots or the pipeline change its tables between two steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import integration.replicate.test_follower_filled
import pytest
from integration.replicate.test_follower_filled import Filled, filled, on_mariadb, on_mysql
from long_form import long

from changefeed.errors import SchemaError, SettingsError, SourceError
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.replicate.filler import TableRows
from changefeed.snapshot.planning import SnapshotPlan, plan_snapshot

pytestmark = pytest.mark.extended

__all__ = ["filled"]


def numbers(count: int) -> str:
    return ", ".join(f"({number}, {number % 5})" for number in range(count))


def make_tables(filled: Filled, **tables: int) -> str:
    """Create tables with rows from before the pipeline; those whose names end with `less` have no key."""
    name = f"{filled.name}_a"
    filled.source.execute(f"CREATE DATABASE {name}")
    for table, count in tables.items():
        key = "" if table.endswith("less") else " PRIMARY KEY"
        filled.source.execute(f"CREATE TABLE {name}.{table} (id INT{key}, n INT)")
        if count:
            filled.source.execute(f"INSERT INTO {name}.{table} VALUES {numbers(count)}")
    filled.publish()
    filled.source.execute(f"CREATE TABLE {name}.here (id INT PRIMARY KEY)")
    filled.publish()
    return name


def finish_snapshot(filled: Filled, snapshot: Iterator[SnapshotRecord]) -> None:
    for _ in snapshot:
        filled.publish()
    filled.publish()


def check_equal(filled: Filled) -> None:
    """Check that the follower equals the source, and that no table waits."""
    assert filled.follow().waiting == ()
    filled.check()


@on_mysql
def test_skipped_table_that_is_filled_does_not_wait(filled: Filled) -> None:
    make_tables(filled, first=30)
    finish_snapshot(filled, filled.snapshot("1"))
    check_equal(filled)


ANEW = {
    "truncated": ["TRUNCATE TABLE {0}.keyless", "INSERT INTO {0}.keyless VALUES (7, 7)"],
    "altered": ["ALTER TABLE {0}.keyless ADD COLUMN more INT NOT NULL DEFAULT 4"],
    "made again": ["DROP TABLE {0}.keyless", "CREATE TABLE {0}.keyless (t TEXT)", "INSERT INTO {0}.keyless VALUES (1)"],
    "renamed": [
        "RENAME TABLE {0}.keyless TO {0}.other",
        "CREATE TABLE {0}.keyless (id INT, n INT)",
        "INSERT INTO {0}.keyless VALUES (7, 7)",
    ],
}


@pytest.mark.parametrize(
    ("becomes", "filled"),
    [
        ("truncated", "mariadb"),
        ("renamed", "mysql"),
        *long(("truncated", "mysql"), ("altered", "mariadb"), ("made again", "mysql"), ("renamed", "mariadb")),
    ],
    indirect=["filled"],
)
def test_a_keyless_table_is_defined_anew_before_it_is_read(filled: Filled, becomes: str) -> None:
    name = make_tables(filled, first=400, keyless=30)
    snapshot = filled.snapshot("1")
    next(snapshot)  # chunks of the first table
    filled.source.execute(*(each.format(name) for each in ANEW[becomes]))
    filled.publish()
    with suppress(SchemaError, SourceError):
        finish_snapshot(filled, snapshot)
    filled.publish()
    filled.follow()
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@on_mysql
def test_a_keyless_table_is_dropped_before_it_is_read(filled: Filled) -> None:
    name = make_tables(filled, first=400, keyless=30)
    snapshot = filled.snapshot("1")
    next(snapshot)
    filled.follow()
    filled.source.execute(f"DROP TABLE {name}.keyless")
    filled.publish()
    with suppress(SchemaError, SourceError):
        finish_snapshot(filled, snapshot)
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@pytest.mark.long
@pytest.mark.parametrize(
    ("follows", "filled"),
    [("before", "mysql"), *long(("before", "mariadb"), ("afterwards", "mysql"))],
    indirect=["filled"],
)
def test_tables_dropped_before_they_are_read_do_not_block_others(filled: Filled, follows: str) -> None:
    name = make_tables(filled, first=400, keyless=30, late=400)
    snapshot = filled.snapshot("1")
    next(snapshot)
    if follows == "before":
        filled.follow()
    for table in ("keyless", "late"):
        filled.source.execute(f"UPDATE {name}.{table} SET n = n + 1 WHERE id < 9")
        filled.publish()
        if follows == "before":
            filled.follow()
        filled.source.execute(f"DROP TABLE {name}.{table}")
    finish_snapshot(filled, snapshot)
    check_equal(filled)


@pytest.mark.long
@on_mysql
def test_a_table_is_dropped_after_what_is_published_before_a_snapshot_of_all_begins(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_tables(filled, first=30, gone=30)
    filled.source.execute(f"UPDATE {name}.gone SET n = n + 1", f"DROP TABLE {name}.gone")
    publishing = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: filled.publish())
    monkeypatch.setattr("changefeed.snapshot.follower_announcer.time", publishing)
    snapshot = filled.snapshot("1")
    next(snapshot)
    monkeypatch.undo()
    finish_snapshot(filled, snapshot)
    check_equal(filled)


HALFWAY = {
    "column": [
        "ALTER TABLE {0}.first ADD COLUMN more INT NOT NULL DEFAULT 7",
        "UPDATE {0}.first SET n = 9 WHERE id < 5",
    ],
    "emptied": ["TRUNCATE TABLE {0}.first", "INSERT INTO {0}.first VALUES (3, 3), (390, 3)"],
}


@pytest.mark.parametrize(("becomes", "filled"), [("column", "mysql"), ("emptied", "mariadb")], indirect=["filled"])
def test_a_half_filled_table_is_read_from_its_beginning_again(filled: Filled, becomes: str) -> None:
    name = make_tables(filled, first=400)
    snapshot = filled.snapshot("1")
    next(snapshot)
    filled.publish()
    assert f"{name}.first" in filled.follow().waiting
    filled.source.execute(*(each.format(name) for each in HALFWAY[becomes]))
    filled.publish()
    finish_snapshot(filled, snapshot)
    check_equal(filled)


@on_mysql
def test_a_half_read_table_is_dropped_and_the_others_are_filled(filled: Filled) -> None:
    name = make_tables(filled, first=400, second=30)
    snapshot = filled.snapshot("1")
    next(snapshot)
    filled.publish()
    assert f"{name}.first" in filled.follow().waiting
    filled.source.execute(f"UPDATE {name}.first SET n = n + 1", f"DROP TABLE {name}.first")
    finish_snapshot(filled, snapshot)
    check_equal(filled)


@on_mysql
def test_a_table_is_dropped_that_the_pipeline_has_not_published_yet(filled: Filled) -> None:
    name = make_tables(filled, first=30, gone=30)
    filled.source.execute(f"UPDATE {name}.gone SET n = 1", f"DROP TABLE {name}.gone")
    snapshot = filled.snapshot("1")
    filled.publish()
    finish_snapshot(filled, snapshot)
    check_equal(filled)


@pytest.mark.long
@on_mariadb
def test_a_table_is_made_between_plan_and_announcement(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_tables(filled, first=30)
    plan = plan_snapshot

    def planned(*args: Any) -> SnapshotPlan:
        done = plan(*args)
        monkeypatch.undo()
        filled.source.execute(f"CREATE TABLE {name}.new (id INT PRIMARY KEY)", f"INSERT INTO {name}.new VALUES (1)")
        filled.publish()
        filled.follow()
        return done

    monkeypatch.setattr(integration.replicate.test_follower_filled, "plan_snapshot", planned)
    finish_snapshot(filled, filled.snapshot("1"))
    assert filled.follow().waiting == (f"{name}.new",)
    assert filled.follow().waiting == (f"{name}.new",), "it is said again where nothing changed"
    filled.source.execute(f"CREATE TABLE {name}.other LIKE {name}.new", f"INSERT INTO {name}.other VALUES (1)")
    filled.publish()
    assert filled.follow().waiting == (f"{name}.new", f"{name}.other")
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@on_mysql
def test_a_table_is_renamed_when_all_its_rows_are_published(filled: Filled) -> None:
    name = make_tables(filled, first=30)
    finish_snapshot(filled, filled.snapshot("1"))
    filled.source.execute(f"RENAME TABLE {name}.first TO {name}.other")
    filled.publish()
    check_equal(filled)


@pytest.mark.long
@on_mysql
def test_a_half_filled_table_makes_room_for_another_that_the_snapshot_goes_on_with(filled: Filled) -> None:
    name = make_tables(filled, x=400)
    snapshot = filled.snapshot("1")
    next(snapshot)
    filled.publish()
    filled.follow()
    filled.source.execute(f"RENAME TABLE {name}.x TO {name}.old", f"CREATE TABLE {name}.x (id INT PRIMARY KEY, n INT)")
    filled.publish()
    finish_snapshot(filled, snapshot)
    assert filled.follow().waiting == (f"{name}.old",)
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@pytest.mark.long
@on_mysql
def test_a_half_filled_table_exchanges_a_partition(filled: Filled) -> None:
    name = make_tables(filled, b=400)
    filled.source.execute(
        f"CREATE TABLE {name}.a (id INT PRIMARY KEY, n INT) "
        "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (900))"
    )
    filled.publish()
    snapshot = filled.snapshot("1")
    next(snapshot)
    filled.publish()
    filled.follow()
    filled.source.execute(f"ALTER TABLE {name}.a EXCHANGE PARTITION p WITH TABLE {name}.b")
    filled.publish()
    with pytest.raises(SettingsError, match=f"--tables {name}.a --tables {name}.b`"):
        filled.follow()


@on_mysql
def test_half_filled_table_exchanges_rows_with_a_partition_of_a_complete_one(filled: Filled) -> None:
    name = make_tables(filled, b=400)
    filled.source.execute(
        f"CREATE TABLE {name}.a (id INT PRIMARY KEY, n INT) "
        "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (900))"
    )
    filled.publish()
    finish_snapshot(filled, filled.snapshot("1", tables=[f"{name}.a", f"{name}.here"]))
    snapshot = filled.snapshot("2", tables=[f"{name}.b"])
    next(snapshot)
    filled.publish()
    assert filled.follow().waiting == (f"{name}.b",)
    filled.source.execute(f"ALTER TABLE {name}.a EXCHANGE -- rows\n PARTITION p WITH TABLE {name}.b")
    filled.publish()
    with pytest.raises(SettingsError, match=f"--tables {name}.a --tables {name}.b`"):
        filled.follow()


@pytest.mark.long
@on_mysql
def test_a_half_filled_table_takes_the_name_of_one_that_is_published(filled: Filled) -> None:
    name = make_tables(filled, a=10, b=400)
    snapshot = filled.snapshot("1")
    next(snapshot)
    next(snapshot)
    filled.publish()
    filled.follow()
    filled.source.execute(f"RENAME TABLE {name}.a TO {name}.old, {name}.b TO {name}.a")
    filled.publish()
    filled.follow()
    with suppress(SchemaError, SourceError):
        finish_snapshot(filled, snapshot)
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@pytest.mark.long
@on_mariadb
def test_tables_missing_on_the_follower_are_exchanged(filled: Filled) -> None:
    name = make_tables(filled, a=10, b=20)
    filled.source.execute(f"RENAME TABLE {name}.a TO {name}.t, {name}.b TO {name}.a, {name}.t TO {name}.b")
    filled.publish()
    finish_snapshot(filled, filled.snapshot("1"))
    check_equal(filled)


@pytest.mark.long
@on_mysql
def test_existing_table_is_replaced_by_one_missing_on_the_follower(filled: Filled) -> None:
    name = make_tables(filled, x=10, other=5)
    finish_snapshot(filled, filled.snapshot("1", tables=[f"{name}.x"]))
    filled.follow()
    filled.source.execute(
        f"CREATE TABLE {name}.ghost (id BIGINT PRIMARY KEY, n INT)",
        f"INSERT INTO {name}.ghost SELECT * FROM {name}.x",
        f"RENAME TABLE {name}.x TO {name}.del, {name}.ghost TO {name}.x",
        f"DROP TABLE {name}.del",
    )
    filled.publish()
    assert f"{name}.x" in filled.follow().waiting
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@pytest.mark.long
@on_mariadb
def test_a_half_filled_table_is_dropped_on_the_follower(filled: Filled) -> None:
    name = make_tables(filled, first=400)
    snapshot = filled.snapshot("1")
    next(snapshot)
    filled.publish()
    assert f"{name}.first" in filled.follow().waiting
    filled.follower.execute(f"DROP TABLE {name}.first")
    finish_snapshot(filled, snapshot)
    filled.source.execute(f"UPDATE {name}.first SET n = n + 1 WHERE id % 3 = 0")
    filled.publish()
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@pytest.mark.long
@on_mariadb
def test_rows_of_a_keyless_table_are_gone_and_another_snapshot_is_taken(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_tables(filled, keyless=30)
    finish_snapshot(filled, filled.snapshot("1"))

    def gone(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(TableRows, "of", gone)
    with pytest.raises(RuntimeError):
        filled.follow()
    monkeypatch.undo()
    filled.source.execute(f"UPDATE {name}.keyless SET n = n + 1", f"INSERT INTO {name}.keyless VALUES (900, 1)")
    filled.publish()
    finish_snapshot(filled, filled.snapshot("2"))
    check_equal(filled)


@on_mysql
def test_a_table_of_a_database_without_tables(filled: Filled) -> None:
    filled.source.execute(f"CREATE DATABASE {filled.name}_b")
    make_tables(filled, first=10)
    finish_snapshot(filled, filled.snapshot("1"))
    filled.follow()
    filled.source.execute(f"CREATE TABLE {filled.name}_b.t (id INT PRIMARY KEY)")
    filled.publish()
    filled.follow()
    filled.check()


@pytest.mark.long
@on_mariadb
def test_a_follower_of_a_database_that_had_no_tables(filled: Filled) -> None:
    name = make_tables(filled, first=10)
    other = f"{filled.name}_b"
    finish_snapshot(filled, filled.snapshot("1"))
    filled.follow(databases=[other])
    filled.source.execute(
        f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (id INT PRIMARY KEY)", f"INSERT INTO {other}.t VALUES (1)"
    )
    filled.publish()
    filled.follow(databases=[other])
    expected = {key: value for key, value in filled.tables(filled.source).items() if name not in key}
    assert filled.tables(filled.follower) == expected


@pytest.mark.long
@on_mysql
def test_tables_created_after_a_snapshot_of_all_hidden_by_a_later_snapshot(filled: Filled) -> None:
    name = make_tables(filled, first=10)
    finish_snapshot(filled, filled.snapshot("1"))
    filled.source.execute(f"CREATE TABLE {name}.new (id INT PRIMARY KEY)", f"INSERT INTO {name}.new VALUES (1)")
    filled.publish()
    finish_snapshot(filled, filled.snapshot("2", tables=[f"{name}.first", f"{name}.here"]))
    check_equal(filled)


@pytest.mark.long
@on_mysql
def test_run_without_changes_reports_waiting_tables_again(filled: Filled) -> None:
    name = make_tables(filled, first=10)
    filled.source.execute(f"UPDATE {name}.first SET n = n + 1")
    filled.publish()
    assert f"{name}.first" in filled.follow().waiting
    assert filled.follow().waiting


@pytest.mark.long
@on_mysql
def test_a_half_filled_table_loses_its_key(filled: Filled) -> None:
    name = make_tables(filled, first=400)
    snapshot = filled.snapshot("1")
    next(snapshot)
    filled.publish()
    filled.follow()
    filled.source.execute(f"ALTER TABLE {name}.first DROP PRIMARY KEY", f"UPDATE {name}.first SET n = n + 1")
    filled.publish()
    with suppress(SchemaError, SourceError):
        finish_snapshot(filled, snapshot)
    with pytest.raises(SettingsError, match="has no primary key any more"):
        filled.follow()
    finish_snapshot(filled, filled.snapshot("2"))
    filled.follower.execute(f"DROP TABLE {name}.first")
    check_equal(filled)
