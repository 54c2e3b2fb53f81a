"""Servers with their default settings: DDL between the start of a pipeline and its rows, for each kind of start."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults.existing_rows import snapshot_beside_runs
from faults.feed import Feed, Runner
from faults.replica import replicate, stop_replicating, wait_until_caught_up
from integration.ddl.test_schemas_backwards import HARMLESS, ON_MARIADB, ROW, SHOWN, TABLE, UNKNOWN
from integration.topic_rows import records_of

from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql import source
from changefeed.source.mysql.session import Session
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import GTIDS, MysqlServer
from devstack.process import run_server
from devstack.sql_server import SqlServer

GONE = ("drop table", "drop column of the key")
"""Statements after which a table has no row with an id."""
BEFORE = {"id": 1, "name": "name", "size": "m", "note": "note", "twin": "twin", "amount": 4000000000, "at": 20455}
"""The first row of each table, as it is published."""


STOCK = ("mysql_server", "mariadb_server")
OLDER = ("mysql_57_server", "mysql_80_server", "mariadb_1011_server", "mariadb_118_server")
"""Other releases: for the first run, and with CHANGEFEED_RELEASES=all for all others."""
ALL = os.environ.get("CHANGEFEED_RELEASES") == "all"
EACH = (*STOCK, *(OLDER if ALL else ()))
FAILOVERS: list[tuple[type[SqlServer], str]] = [(MysqlServer, "9.7"), (MariadbServer, "11.4")]
if ALL:
    FAILOVERS += [(MysqlServer, "5.7"), (MysqlServer, "8.0"), (MariadbServer, "10.11"), (MariadbServer, "11.8")]


def derivable(server: SqlServer) -> dict[str, str]:
    """Statements before which this server's tables can be derived from the later ones."""
    version = str(server.execute("SELECT VERSION()")[0][0])
    if version.startswith("5.7"):
        renamed = {name: sql for name, sql in HARMLESS.items() if "RENAME COLUMN" not in sql}
        return renamed | {name: SHOWN[name] for name in ON_MARIADB}
    if isinstance(server, MariadbServer):
        return HARMLESS | {name: SHOWN[name] for name in ON_MARIADB}
    return HARMLESS | SHOWN


@dataclass
class Stock:
    """A pipeline on a stock server, and a table for each statement."""

    feed: Feed
    statements: dict[str, str]

    @property
    def server(self) -> SqlServer:
        return self.feed.mysql

    def head(self) -> str:
        with Session(MysqlConnection.from_uri(self.server.url)) as session:
            return str(source.head(session).coordinates)

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

    def rows_after(self) -> None:
        for number, name in enumerate(self.statements):
            if name not in GONE:
                row = "(id, name) VALUES (2, 'n')" if name == "other key" else "(id) VALUES (2)"
                self.server.execute(f"INSERT INTO {self.feed.name}.t{number} {row}")

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
        """Each table's first row is published as it was, and the one after its statement."""
        published = self.published(suffix)
        assert {name: rows[0] for name, rows in published.items()} == dict.fromkeys(self.statements, BEFORE)
        assert [name for name, rows in published.items() if len(rows) != 2] == []


@pytest.fixture(params=EACH)
def stock(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Stock]:
    server: SqlServer = request.getfixturevalue(request.param)
    stock = Stock(Feed(unique_name, server, kafka_broker, tmp_path, runner), derivable(server))
    stock.create()
    server.execute("FLUSH BINARY LOGS")
    yield stock
    server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


@pytest.mark.parametrize(
    "stock", [*STOCK, *(pytest.param(each, marks=pytest.mark.extended) for each in OLDER)], indirect=True
)
def test_a_first_run_from_before_the_ddl(stock: Stock) -> None:
    stock.begin_at(stock.head())
    stock.rows()
    stock.alter()
    stock.rows_after()
    stock.feed.run()
    stock.check()


@pytest.mark.extended
def test_ddl_after_a_first_run_that_found_nothing(stock: Stock) -> None:
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows()
    stock.alter()
    stock.rows_after()
    stock.feed.run()
    stock.check()


@pytest.mark.extended
def test_ddl_between_the_checkpoint_and_a_snapshot(stock: Stock) -> None:
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows()
    stock.alter()
    stock.rows_after()
    with snapshot_beside_runs(stock.feed):
        snapshot = stock.feed.fork_command("", "snapshot", stock.feed.name)
        assert snapshot.result() == 0, snapshot.text()[-3000:]
    published = stock.published()
    assert [name for name, rows in published.items() if BEFORE not in rows] == []


@pytest.mark.extended
def test_a_seek_back_to_before_the_history(stock: Stock) -> None:
    before = stock.head()
    stock.rows()
    stock.alter()
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows_after()
    stock.feed.run()
    seek = stock.feed.command("seek", stock.feed.name, before, "--why", "a test", "--yes")
    assert seek.returncode == 0, seek.stdout + seek.stderr
    stock.feed.run_until_current()
    published = stock.published()
    assert {name: rows[0] for name, rows in published.items()} == dict.fromkeys(stock.statements, BEFORE)


@pytest.mark.extended
def test_a_backfill_of_a_file_from_before_the_history(stock: Stock) -> None:
    file = stock.head().partition(":")[0]
    stock.rows()
    stock.server.execute("FLUSH BINARY LOGS")
    stock.alter()
    stock.begin_at("latest")
    stock.feed.run()
    stock.rows_after()
    backfill = stock.feed.fork_command("", "backfill", stock.feed.name, "--from-file", file)
    assert backfill.result() == 0, backfill.text()[-3000:]
    published = stock.published(".replay")
    assert published == {name: [BEFORE] for name in stock.statements}


@pytest.mark.extended
@pytest.mark.parametrize(("kind", "release"), FAILOVERS)
def test_ddl_that_a_new_server_has_yet_to_give(
    kind: type[SqlServer], release: str, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    options = {"log_slave_updates": "ON"} | ({} if kind is MariadbServer else GTIDS)

    def server(folder: str, server_id: int) -> SqlServer:
        settings = {**options, "server_id": server_id}
        return kind(tmp_path / folder, options=settings, release=release, owner=ProcessId.own(), quick=True)

    with run_server(server("a", 1)) as source, run_server(server("b", 2)) as other:
        replicate(source, other)
        stock = Stock(Feed(unique_name, source, kafka_broker, tmp_path, runner), derivable(source))
        stock.create()
        stock.feed.run()
        stock.rows()
        stock.alter()
        wait_until_caught_up(source, other)
        source.stop()
        stop_replicating(other)
        stock.feed.mysql = other
        stock.rows_after()
        stock.feed.run()
        stock.check()


# --- what nothing proves


@pytest.fixture(params=STOCK)
def unknown(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Stock]:
    """Rows before statements that leave no trace of the earlier schemas, and a pipeline that begins before them."""
    server: SqlServer = request.getfixturevalue(request.param)
    stock = Stock(Feed(unique_name, server, kafka_broker, tmp_path, runner), UNKNOWN)
    stock.create()
    server.execute("FLUSH BINARY LOGS")
    stock.begin_at(stock.head())
    stock.rows()
    stock.alter()
    stock.rows_after()
    yield stock
    server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


@pytest.mark.extended
def test_all_unknown_tables_are_listed_before_the_first_row(unknown: Stock) -> None:
    feed = unknown.feed
    texts = []
    for arguments in (("check", feed.name), ("plan", feed.name)):
        looked = feed.command(*arguments)
        assert looked.returncode == 1, looked.stdout + looked.stderr
        texts.append(looked.stdout + looked.stderr)
    run = feed.begin()
    assert run.result() == 2, run.text()
    for text in (*texts, run.text()):
        plain = " ".join(text.split())
        for number in range(len(unknown.statements)):
            assert f"{feed.name}.t{number}, 1 rows from" in plain
        assert f"changefeed schema {feed.name} --unknown begin" in plain
    assert [rows for rows in unknown.published().values() if rows] == []


@pytest.mark.extended
def test_unknown_rows_before_a_known_schema_are_skipped_and_counted(unknown: Stock) -> None:
    feed = unknown.feed
    assert feed.begin().result() == 2
    answered = feed.command("schema", feed.name, "--unknown", "begin")
    assert answered.returncode == 0, answered.stdout + answered.stderr
    feed.run()
    published = unknown.published()
    assert {name: len(rows) for name, rows in published.items()} == {name: int(name not in GONE) for name in UNKNOWN}
    (window,) = json.loads(feed.command("windows", feed.name, "--json").stdout)
    left_out = {table: ops for table, ops in window["filtered"].items() if table.startswith(f"{feed.name}.t")}
    assert left_out == {f"{feed.name}.t{number}": {"c": 1} for number in range(len(UNKNOWN))}


@pytest.mark.extended
def test_unknown_names_get_placeholders(unknown: Stock) -> None:
    feed = unknown.feed
    feed.settings["unknown_schema"] = {f"{feed.name}.t*": "placeholder"}
    feed.configure()
    feed.run()
    published = unknown.published()
    assert all(
        len(rows) == 1 + (name not in ("drop table", "drop column of the key")) for name, rows in published.items()
    )
    (dropped,) = published["drop table"]
    assert list(dropped) == [f"__dropped_col_{number}__" for number in range(7)]
    assert next(iter(dropped.values())) == 1
    assert {row["size"] for row in published["enum"]} == {2, None}
    keys = [record.key for record in records_of(feed.kafka.bootstrap, f"{feed.name}.t4")]
    assert None in keys


@pytest.mark.long
@pytest.mark.extended
def test_column_that_may_be_hidden_gets_no_placeholder(unknown: Stock) -> None:
    feed = unknown.feed
    feed.settings["unknown_schema"] = "placeholder"
    feed.settings["columns"] = {"mask": {f"{feed.name}.t3.name": {"text": "-"}}}
    feed.configure()
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "a hidden column may be among them" in " ".join(run.text().split())
    assert [rows for rows in unknown.published().values() if rows] == []
    feed.settings["columns"]["mask"][f"{feed.name}.t3.__dropped_col_*"] = {"text": None}
    feed.configure()
    feed.run()
    (dropped,) = unknown.published()["drop table"]
    assert set(dropped.values()) == {None}


@pytest.mark.extended
def test_earlier_statements_define_the_earlier_tables(unknown: Stock, tmp_path: Path) -> None:
    feed, file = unknown.feed, tmp_path / "before.sql"
    assert feed.begin().result() == 2
    file.write_text(f"CREATE TABLE {feed.name}.t0 (id INT PRIMARY KEY, name VARCHAR(40));")
    wrong = feed.command("schema", feed.name, "--define", str(file))
    assert wrong.returncode == 1
    assert "cannot be of the table that the statements define" in " ".join((wrong.stdout + wrong.stderr).split())
    dump = [
        f"CREATE TABLE `t{number}` {TABLE};\n/*!40101 SET character_set_client = utf8 */;"
        for number in range(len(UNKNOWN))
    ]
    file.write_text(f"-- a dump; of before\nCREATE DATABASE {feed.name};\nUSE `{feed.name}`;\n" + "\n".join(dump))
    defined = feed.command("schema", feed.name, "--define", str(file))
    assert defined.returncode == 0, defined.stdout + defined.stderr
    feed.run()
    assert {name: rows[0] for name, rows in unknown.published().items()} == dict.fromkeys(UNKNOWN, BEFORE)


@pytest.mark.long
@pytest.mark.extended
def test_invisible_primary_keys_that_the_server_hides_are_known(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    options = {"sql_generate_invisible_primary_key": "ON", "show_gipk_in_create_table_and_information_schema": "OFF"}
    with run_server(MysqlServer(tmp_path / "own", options=options, owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
        server.execute("CREATE TABLE keyless (name VARCHAR(10))", database=unique_name)
        server.execute("INSERT INTO keyless VALUES ('a')", "FLUSH BINARY LOGS", database=unique_name)
        feed.settings["start"] = server.head()
        feed.configure()
        server.execute("UPDATE keyless SET name = 'b'", database=unique_name)
        feed.run()
        server.execute(
            "ALTER TABLE keyless ADD COLUMN more INT", "INSERT INTO keyless VALUES ('c', 1)", database=unique_name
        )
        feed.run()
        changes = [(record.key, json.loads(record.value)["after"]) for record in feed.records("keyless")]
        assert changes == [
            (b'{"my_row_id":1}', {"my_row_id": 1, "name": "b"}),
            (b'{"my_row_id":2}', {"my_row_id": 2, "name": "c", "more": 1}),
        ]
