"""Servers with their default settings: DDL between where a pipeline begins and its rows, in each way to begin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults.existing_rows import running_beside
from faults.feed import Feed, Runner
from faults.replica import caught_up, replicate, stop_replicating
from integration.rebuilt import records_of
from integration.test_schemas_backwards import HARMLESS, ON_MARIADB, ROW, SHOWN, TABLE

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import started
from devstack.sql_server import SqlServer

BEFORE = {"id": 1, "name": "name", "size": "m", "note": "note", "twin": "twin", "amount": 4000000000, "at": 20455}
"""The first row of each table, as it is published."""


def derivable(server: SqlServer) -> dict[str, str]:
    """Statements before which the tables of this server follow from what is after them."""
    if not isinstance(server, MariadbServer):
        return HARMLESS | SHOWN
    shown = {name: sql for name, sql in SHOWN.items() if name in ON_MARIADB}
    return HARMLESS | shown


@dataclass
class Stock:
    """A pipeline on a stock server, and a table for each statement."""

    feed: Feed
    statements: dict[str, str]

    @property
    def server(self) -> SqlServer:
        return self.feed.mysql

    def create(self) -> None:
        for number in range(len(self.statements)):
            table = f"{self.feed.name}.t{number}"
            self.server.execute(f"CREATE TABLE {table} {TABLE}", f"CREATE INDEX by_amount ON {table} (amount)")

    def rows(self) -> None:
        for number in range(len(self.statements)):
            self.server.execute(f"INSERT INTO {self.feed.name}.t{number} VALUES {ROW}")

    def alter(self) -> None:
        for number, sql in enumerate(self.statements.values()):
            self.server.execute(*sql.format(t=f"{self.feed.name}.t{number}").split("; "))

    def rows_behind(self) -> None:
        for number, name in enumerate(self.statements):
            if name not in ("drop table", "drop column of the key"):
                self.server.execute(f"INSERT INTO {self.feed.name}.t{number} (id) VALUES (2)")

    def begin_at(self, start: str) -> None:
        self.feed.settings["start"] = start
        self.feed.configure()

    def published(self, suffix: str = "") -> dict[str, list[dict[str, Any]]]:
        """By statement the rows that were published of its table."""
        found = {}
        for number, name in enumerate(self.statements):
            records = records_of(self.feed.kafka.bootstrap, f"{self.feed.name}.t{number}{suffix}")
            values = [json.loads(record.value) for record in records if record.value is not None]
            found[name] = sorted((v["after"] for v in values if v["op"] in "cr"), key=lambda row: row.get("id", 0))
        return found

    def check(self, suffix: str = "") -> None:
        """Each table's first row is published as it was, and the one behind its statement."""
        published = self.published(suffix)
        assert {name: rows[0] for name, rows in published.items()} == dict.fromkeys(self.statements, BEFORE)
        assert [name for name, rows in published.items() if len(rows) != 2] == []


@pytest.fixture(params=["stock_mysql_server", "stock_mariadb_server"], ids=["mysql", "mariadb"])
def stock(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Stock]:
    server: SqlServer = request.getfixturevalue(request.param)
    stock = Stock(Feed(unique_name, server, kafka_broker, tmp_path, runner), derivable(server))
    stock.create()
    server.execute("FLUSH BINARY LOGS")
    yield stock
    server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


def test_a_first_run_from_before_the_ddl(stock: Stock) -> None:
    stock.begin_at(stock.server.head())
    stock.rows()
    stock.alter()
    stock.rows_behind()
    stock.feed.run()
    stock.check()


def test_ddl_after_a_first_run_that_found_nothing(stock: Stock) -> None:
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows()
    stock.alter()
    stock.rows_behind()
    stock.feed.run()
    stock.check()


def test_ddl_between_the_checkpoint_and_a_snapshot(stock: Stock) -> None:
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows()
    stock.alter()
    stock.rows_behind()
    with running_beside(stock.feed):
        snapshot = stock.feed.fork_command("", "snapshot", stock.feed.name)
        assert snapshot.result() == 0, snapshot.text()[-3000:]
    published = stock.published()
    assert [name for name, rows in published.items() if BEFORE not in rows] == []


def test_a_seek_back_to_before_the_history(stock: Stock) -> None:
    before = stock.server.head()
    stock.rows()
    stock.alter()
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows_behind()
    stock.feed.run()
    sought = stock.feed.command("seek", stock.feed.name, before, "--why", "a test", "--yes")
    assert sought.returncode == 0, sought.stdout + sought.stderr
    stock.feed.run_until_current()
    published = stock.published()
    assert {name: rows[0] for name, rows in published.items()} == dict.fromkeys(stock.statements, BEFORE)


def test_a_backfill_of_a_file_from_before_the_history(stock: Stock) -> None:
    file = stock.server.head().partition(":")[0]
    stock.rows()
    stock.server.execute("FLUSH BINARY LOGS")
    stock.alter()
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows_behind()
    backfill = stock.feed.fork_command("", "backfill", stock.feed.name, "--from-file", file)
    assert backfill.result() == 0, backfill.text()[-3000:]
    published = stock.published(".replay")
    assert published == {name: [BEFORE] for name in stock.statements}


@pytest.mark.parametrize("kind", [MysqlServer, MariadbServer], ids=["mysql", "mariadb"])
def test_ddl_that_a_new_server_has_yet_to_give(
    kind: type[SqlServer], kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    options = (
        {"log_slave_updates": "ON"} if kind is MariadbServer else {"gtid-mode": "ON", "enforce-gtid-consistency": "ON"}
    )
    with (
        started(kind(tmp_path / "a", options=options, owner=ProcessId.own(), quick=True)) as source,
        started(kind(tmp_path / "b", options={**options, "server_id": 2}, owner=ProcessId.own(), quick=True)) as other,
    ):
        replicate(source, other)
        stock = Stock(Feed(unique_name, source, kafka_broker, tmp_path, runner), derivable(source))
        stock.create()
        stock.feed.run()
        stock.rows()
        stock.alter()
        caught_up(source, other)
        source.stop()
        stop_replicating(other)
        stock.feed.mysql = other
        stock.rows_behind()
        stock.feed.run()
        stock.check()
