"""Tables that are replaced or dropped while a snapshot has read half of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import integration.replicate.test_follower_filled as follower_filled
import pytest
from integration.replicate.test_follower_filled import Filled, filled, on_mariadb, on_mysql
from integration.topic_rows import records_of, select_rows

import changefeed.snapshot.round as rounds
from changefeed.errors import SourceError
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

pytestmark = pytest.mark.extended

__all__ = ["filled"]

ROWS, PUBLISHED = 130, 120
"""A round of six chunks, and a rest."""


def make_tables(filled: Filled, **tables: str) -> str:
    """Create a database with ``tables`` of ROWS rows; a table's value is that of its column n."""
    name = f"{filled.name}_a"
    filled.source.execute(f"CREATE DATABASE {name}")
    for table, n in tables.items():
        rows = ", ".join(f"({number}, {n})" for number in range(ROWS))
        filled.source.execute(
            f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, n INT)", f"INSERT INTO {name}.{table} VALUES {rows}"
        )
    filled.publish()
    filled.source.execute(f"CREATE TABLE {name}.here (id INT PRIMARY KEY)")  # windows begin before the snapshot
    filled.publish()
    return name


def finish_snapshot(filled: Filled, snapshot: Iterator[SnapshotRecord]) -> SnapshotRecord:
    for last in snapshot:  # noqa: B007 - the last one counts
        filled.publish()
    filled.publish()
    return last


def row_from_topic(filled: Filled, table: str) -> dict[Any, Any]:
    """The latest row of each key of a topic, without deleted ones."""
    rows: dict[Any, Any] = {}
    for record in records_of(filled.kafka.bootstrap, f"{filled.name}_a.{table}"):
        if record.value is not None and record.key is not None:
            rows[tuple(json.loads(record.key).items())] = json.loads(record.value)["after"]
    return {key: row for key, row in rows.items() if row is not None}


def check_topic(filled: Filled, table: str) -> None:
    """Check that the topic has each row of the source."""
    found, expected = row_from_topic(filled, table), select_rows(filled.source, f"{filled.name}_a", table)
    assert expected
    others = {key: (row, found.get(key)) for key, row in expected.items() if found.get(key) != row}
    assert not others, f"{len(others)} of {len(expected)} rows, the first: {next(iter(others.items()))}"


PARTITIONED = "(id INT PRIMARY KEY, n INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9000))"
REPLACED = {
    "swap": ["RENAME TABLE {0}.t TO {0}.old, {0}.u TO {0}.t, {0}.old TO {0}.u"],
    "rename": ["ALTER TABLE {0}.t RENAME TO {0}.old", "ALTER TABLE {0}.u RENAME TO {0}.t"],
    "exchange": [
        f"CREATE TABLE {{0}}.p {PARTITIONED}",
        "INSERT INTO {0}.p SELECT * FROM {0}.u",
        "ALTER TABLE {0}.p EXCHANGE PARTITION p WITH TABLE {0}.t",
    ],
    "column": ["ALTER TABLE {0}.t ADD COLUMN more INT NOT NULL DEFAULT 7"],
}


@pytest.mark.parametrize(
    ("becomes", "between", "filled"),
    [
        ("swap", "rounds", "mysql"),
        ("swap", "runs", "mariadb"),
        ("exchange", "runs", "mysql"),
        ("exchange", "rounds", "mariadb"),
        ("rename", "runs", "mysql"),
        ("column", "rounds", "mysql"),
    ],
    indirect=["filled"],
)
def test_half_read_table_replaced_by_another_is_read_again(filled: Filled, becomes: str, between: str) -> None:
    name = make_tables(filled, t="1", u="2")
    snapshot = filled.snapshot("1", tables=[f"{name}.t"])
    next(snapshot)
    assert len(row_from_topic(filled, "t")) == PUBLISHED
    if between == "runs":
        snapshot.close()  # type: ignore[attr-defined]
    filled.source.execute(*(each.format(name) for each in REPLACED[becomes]))
    filled.publish()
    last = finish_snapshot(filled, filled.snapshot("1", tables=[f"{name}.t"]) if between == "runs" else snapshot)
    assert last.finished
    check_topic(filled, "t")


def test_half_read_table_is_read_again_if_the_binlog_since_is_purged(
    spare_server: MysqlServer,
    mysql_follower: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    filled = Filled(unique_name, spare_server, mysql_follower, kafka_broker, tmp_path, {"start": "snapshot"})
    name = make_tables(filled, t="1")
    snapshot = filled.snapshot("1", tables=[f"{name}.t"])
    next(snapshot)
    snapshot.close()  # type: ignore[attr-defined]
    spare_server.execute(f"INSERT INTO {name}.here VALUES (1)", "FLUSH BINARY LOGS")
    filled.publish()
    (file, *_) = spare_server.execute("SHOW BINARY LOG STATUS")[0]
    spare_server.execute(f"PURGE BINARY LOGS TO '{file}'")
    with caplog.at_level(logging.WARNING, logger="changefeed"):
        (table,) = finish_snapshot(filled, filled.snapshot("1", tables=[f"{name}.t"])).tables
    assert table.rows == ROWS + PUBLISHED
    assert f"table {name}.t is read from its beginning again: whether it was replaced" in caplog.text
    check_topic(filled, "t")


@on_mysql
def test_half_read_table_with_new_index_or_partition_is_not_read_again(filled: Filled) -> None:
    name = make_tables(filled, t="1")
    filled.source.execute(f"ALTER TABLE {name}.t PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9000))")
    filled.publish()
    snapshot = filled.snapshot("1", tables=[f"{name}.t"])
    next(snapshot)
    filled.source.execute(
        f"CREATE INDEX n ON {name}.t (n)",
        f"ALTER TABLE {name}.t ADD PARTITION (PARTITION q VALUES LESS THAN (10000))",
        f"CREATE TABLE IF NOT EXISTS {name}.t (id INT PRIMARY KEY)",
    )
    filled.publish()
    (table,) = finish_snapshot(filled, snapshot).tables
    assert table.rows == ROWS
    check_topic(filled, "t")


@pytest.mark.parametrize(
    ("gone", "between", "filled"),
    [
        ("dropped", "plan and start", "mysql"),
        ("renamed", "cut and read", "mysql"),
        ("dropped", "cut and read", "mariadb"),
        ("database dropped", "runs", "mysql"),
        ("dropped", "rounds", "mariadb"),
        ("a view", "rounds", "mysql"),
        ("a view", "cut and read", "mariadb"),
    ],
    indirect=["filled"],
)
def test_dropped_table_does_not_block_the_others(
    filled: Filled, gone: str, between: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name, other = make_tables(filled, t="1", v="2"), f"{filled.name}_b"
    filled.source.execute(f"CREATE DATABASE {other}")
    table = f"{other}.t" if gone == "database dropped" else f"{name}.t"
    if gone == "database dropped":
        filled.source.execute(f"RENAME TABLE {name}.t TO {other}.t")
        filled.publish()
    becomes = {
        "dropped": f"DROP TABLE {table}",
        "renamed": f"RENAME TABLE {table} TO {name}.elsewhere",
        "database dropped": f"DROP DATABASE {other}",
        "a view": f"RENAME TABLE {table} TO {name}.elsewhere; CREATE VIEW {table} AS SELECT * FROM {name}.elsewhere",
    }[gone]

    def go() -> None:
        filled.source.execute(*becomes.split("; "))
        filled.publish()

    tables = [table, f"{name}.v"]
    if between == "plan and start":
        _before_a_call(monkeypatch, follower_filled, "run_snapshot", go)
        snapshot = filled.snapshot("1", tables=tables)
    else:
        snapshot = filled.snapshot("1", tables=tables)
        next(snapshot)
        if between == "cut and read":
            _before_a_call(monkeypatch, rounds, "read_chunks", go)
        else:
            go()
        if between == "runs":
            snapshot.close()  # type: ignore[attr-defined]
            snapshot = filled.snapshot("1", tables=tables)
    with caplog.at_level(logging.WARNING, logger="changefeed"):
        last = finish_snapshot(filled, snapshot)
    assert last.finished
    assert [each.name for each in last.tables if each.gone] == [table]
    assert f"table {table} does not exist any more" in caplog.text
    check_topic(filled, "v")


def _before_a_call(monkeypatch: pytest.MonkeyPatch, module: Any, function: str, act: Callable[[], None]) -> None:
    """Call ``act`` before the next call of a function."""
    real = getattr(module, function)

    def called(*args: Any) -> Any:
        monkeypatch.undo()
        act()
        return real(*args)

    monkeypatch.setattr(module, function, called)


@on_mariadb
def test_table_that_comes_back_before_the_end_is_read(filled: Filled) -> None:
    name = make_tables(filled, t="1", v="2")
    snapshot = filled.snapshot("1", tables=[f"{name}.t", f"{name}.v"])
    next(snapshot)
    filled.source.execute(f"RENAME TABLE {name}.t TO {name}.away")
    filled.publish()
    assert [each.name for each in next(snapshot).tables if each.gone] == [f"{name}.t"]
    filled.source.execute(f"UPDATE {name}.away SET n = 5", f"RENAME TABLE {name}.away TO {name}.t")
    filled.publish()
    last = finish_snapshot(filled, snapshot)
    assert not [each for each in last.tables if each.gone]
    check_topic(filled, "t")
    check_topic(filled, "v")


@on_mysql
def test_table_without_select_right_is_not_treated_as_dropped(filled: Filled) -> None:
    name, source = make_tables(filled, t="1", v="2"), filled.source
    user = f"u{filled.name}"[:30]
    source.execute(
        f"CREATE USER {user} IDENTIFIED BY 'p4ss-word'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        *(f"GRANT SELECT ON {name}.{table} TO {user}" for table in ("t", "v", "here")),
    )
    try:
        tables = [f"{name}.t", f"{name}.v"]
        scheme, _, rest = source.root_url.partition("://")
        filled.uris["source"] = f"{scheme}://{user}:p4ss-word@{rest.rpartition('@')[2]}"
        snapshot = filled.snapshot("1", tables=tables)
        next(snapshot)
        source.execute(f"REVOKE SELECT ON {name}.t FROM {user}")
        with pytest.raises(SourceError, match="denied"):
            finish_snapshot(filled, snapshot)
    finally:
        source.execute(f"DROP USER {user}")
