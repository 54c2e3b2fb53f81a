"""Schemas at unusual moments: DDL that is logged but not committed, temporary tables, commands while a window is
open."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.feed import Feed, Runner
from integration.topic_rows import records_of

from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql import source
from changefeed.source.mysql.session import Session
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.process import run_server
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

mysql = pytest.mark.parametrize("fresh", ["mysql_server"], indirect=True)

TABLE = "(id INT PRIMARY KEY, a INT, b INT)"
OTHER_ORDER = "(id INT PRIMARY KEY, b INT, a INT)"
EXCHANGE = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
NOT_FOLLOWED = "ALTER TABLE {t} MODIFY n MEDIUMTEXT, CONVERT TO CHARACTER SET utf8mb4"
"""Statements that changefeed does not follow, by design."""
DOCUMENT = "(id INT PRIMARY KEY, n TEXT) CHARACTER SET latin1"


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def fresh(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    """A feed of a stock server."""
    server: SqlServer = request.getfixturevalue(request.param)
    feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
    server.execute("FLUSH BINARY LOGS")
    feed.settings |= {"topics": {"partitions": 1}}
    begin_here(feed)
    yield feed
    server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


def head(server: SqlServer) -> str:
    with Session(MysqlConnection.from_uri(server.url)) as session:
        return str(source.head(session).coordinates)


def begin_here(feed: Feed, **settings: Any) -> None:
    feed.settings |= {"start": head(feed.mysql), **settings}
    feed.configure()


def sql(feed: Feed, *statements: str) -> None:
    """Statements in one session, in the feed's database."""
    feed.mysql.execute(*statements, database=feed.name)


def rows(feed: Feed, table: str) -> list[Any]:
    """The published rows of a table, in order."""
    values = [json.loads(r.value) for r in records_of(feed.kafka.bootstrap, f"{feed.name}.{table}") if r.value]
    return [value["after"] or value["before"] for value in values]


def tried(feed: Feed) -> tuple[int, str]:
    run = feed.begin()
    code, text = run.result(), run.text()
    assert "Traceback" not in text, text[-4000:]
    return code, " ".join(text.split())


def asked(feed: Feed, *arguments: str) -> tuple[int, str]:
    done = feed.command(*arguments)
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text[-4000:]
    return done.returncode, " ".join(text.split())


# --- what tables are when they are learned


@mysql
@pytest.mark.parametrize("start", ["latest", "rows"])
def test_tables_learned_while_ddl_is_logged_and_not_yet_committed(fresh: Feed, start: str) -> None:
    """SHOW BINARY LOG STATUS is after the ALTER, information_schema before it: here while semi-sync waits."""
    server = fresh.mysql
    sql(fresh, f"CREATE TABLE t {TABLE}")
    begin_here(fresh)
    sql(fresh, "INSERT INTO t (id, a, b) VALUES (1, 10, 20)")
    if start == "latest":
        begin_here(fresh, start="latest")
    server.execute(
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        "SET GLOBAL rpl_semi_sync_source_timeout = 3000",
        "SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )
    try:
        before, ddl = head(server), threading.Thread(target=sql, args=(fresh, EXCHANGE))
        ddl.start()
        while head(server) == before:
            time.sleep(0.1)
        tried(fresh)
        ddl.join()
    finally:
        server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF", "UNINSTALL PLUGIN rpl_semi_sync_source")
    sql(fresh, "INSERT INTO t (id, a, b) VALUES (2, 10, 20)")
    code, text = tried(fresh)
    assert code in (0, 2), text
    expected = [{"id": 1, "a": 10, "b": 20}, {"id": 2, "b": 20, "a": 10}]
    assert rows(fresh, "t") == expected[0 if start == "rows" else 1 :]


@pytest.mark.long
def test_create_like_a_temporary_table_that_shadows_another(fresh: Feed) -> None:
    sql(fresh, f"CREATE TABLE model {TABLE}")
    fresh.run()
    sql(fresh, "SET SESSION binlog_format = 'STATEMENT'", f"CREATE TEMPORARY TABLE model {OTHER_ORDER}",
        "CREATE TABLE copied LIKE model", "DROP TEMPORARY TABLE model", "SET SESSION binlog_format = 'ROW'",
        "INSERT INTO copied (id, a, b) VALUES (1, 10, 20)")  # fmt: skip
    code, text = tried(fresh)
    assert code == 2 or rows(fresh, "copied") == [{"id": 1, "b": 20, "a": 10}], text


@pytest.mark.long
def test_connection_id_in_ddl_does_not_make_its_table_temporary(fresh: Feed) -> None:
    """The server logs both with the same flag, and a statement on a temporary table changes no schema."""
    sql(fresh, f"CREATE TABLE t {TABLE}")
    fresh.run()
    sql(fresh, "ALTER TABLE t ADD c INT DEFAULT (CONNECTION_ID()) AFTER id", "INSERT INTO t VALUES (1, 5, 10, 20)")
    code, text = tried(fresh)
    assert code in (0, 2), text
    assert rows(fresh, "t") == [{"id": 1, "c": 5, "a": 10, "b": 20}]
    sql(fresh, EXCHANGE, "CREATE TABLE copied LIKE t", "INSERT INTO copied (id, a, b, c) VALUES (2, 10, 20, 5)")
    code, text = tried(fresh)
    assert code in (0, 2), text
    assert rows(fresh, "copied") == [{"id": 2, "c": 5, "b": 20, "a": 10}], text


# --- commands while a window is published in part


def half_published(feed: Feed, partitions: int) -> None:
    """A window of rows of a dropped table, published in part with placeholders."""
    sql(feed, f"CREATE TABLE gone {TABLE}")
    begin_here(feed, topics={"partitions": partitions})
    sql(feed, *[f"INSERT INTO gone VALUES ({n}, {n}, {n})" for n in range(150)], "DROP TABLE gone")
    assert tried(feed)[0] == 2
    assert asked(feed, "schema", feed.name, "--unknown", "placeholder")[0] == 0
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()


@pytest.mark.parametrize("partitions", [1, 2])
def test_define_schema_while_a_window_is_partly_published(fresh: Feed, partitions: int) -> None:
    """With one partition half of the rows would have names, with two no run could finish the window."""
    half_published(fresh, partitions)
    file = fresh.folder / "before.sql"
    file.write_text(f"CREATE TABLE {fresh.name}.gone {TABLE};")
    code, text = asked(fresh, "schema", fresh.name, "--define", str(file))
    assert (code, "is published in part" in text) == (1, True), text
    code, text = tried(fresh)
    assert code == 0, text
    assert len({tuple(row) for row in rows(fresh, "gone")}) == 1


def test_relearn_of_one_table_keeps_the_answers_of_others(fresh: Feed) -> None:
    sql(fresh, f"CREATE TABLE gone {TABLE}")
    begin_here(fresh)
    sql(fresh, "INSERT INTO gone VALUES (1, 1, 1)", "DROP TABLE gone")
    assert tried(fresh)[0] == 2
    assert asked(fresh, "schema", fresh.name, "--unknown", "begin")[0] == 0
    assert asked(fresh, "schema", fresh.name, "--relearn", f"{fresh.name}.journal")[0] == 0
    code, text = tried(fresh)
    assert code == 0, text


# --- what cannot be followed


def not_followed(feed: Feed, **settings: Any) -> str:
    """The tables as they were when their rows were written, as statements that make them."""
    sql(feed, f"CREATE TABLE t0 {DOCUMENT}", f"CREATE TABLE t1 {DOCUMENT}")
    begin_here(feed, **settings)
    feed.run()
    tables = []
    for table in ("t0", "t1"):
        sql(feed, NOT_FOLLOWED.format(t=table), f"INSERT INTO {table} VALUES (1, 'x')")
        tables.append(feed.mysql.execute(f"SHOW CREATE TABLE {feed.name}.{table}")[0][1])
        sql(feed, f"DROP TABLE {table}")
    sql(feed, "INSERT INTO journal (text) VALUES ('x')")
    return f"USE `{feed.name}`;\n" + ";\n".join(tables)


@pytest.mark.parametrize("answer", ["--unknown", "--define", "setting"])
def test_tables_that_cannot_be_followed_can_be_answered_for(fresh: Feed, answer: str) -> None:
    """The run lists all of them, before it publishes anything, and takes the answer of the pipeline's file."""
    tables = not_followed(fresh, **({"unknown_schema": "begin"} if answer == "setting" else {}))
    first, text = tried(fresh)
    if answer == "setting":
        assert first == 0, text
        return
    assert first == 2, text
    assert all(f"{fresh.name}.{table}, 1 rows from" in text for table in ("t0", "t1")), text
    assert rows(fresh, "journal") == []
    file = fresh.folder / "before.sql"
    file.write_text(tables)
    given = {"--unknown": "begin", "--define": str(file)}[answer]
    code, text = asked(fresh, "schema", fresh.name, answer, given)
    assert code == 0, text
    code, text = tried(fresh)
    assert code == 0, text


def test_retry_after_kill_uses_the_answer_of_the_first_run(fresh: Feed) -> None:
    not_followed(fresh, unknown_schema="begin")
    fresh.mysql.execute(*(f"INSERT INTO {fresh.name}.journal (text) VALUES ('{n}')" for n in range(150)))
    run = fresh.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    fresh.run()
    fresh.check()
    (window,) = json.loads(fresh.command("windows", fresh.name, "--json").stdout)[:1]
    assert {table: window["filtered"][f"{fresh.name}.{table}"] for table in ("t0", "t1")} == {
        "t0": {"c": 1},
        "t1": {"c": 1},
    }


@pytest.mark.long
def test_a_table_with_a_dot_can_be_learned_again(fresh: Feed) -> None:
    sql(fresh, "CREATE TABLE `a.b` (id INT PRIMARY KEY)")
    fresh.run()
    sql(fresh, "SET SESSION sql_log_bin = 0", "ALTER TABLE `a.b` ADD COLUMN x INT", "SET SESSION sql_log_bin = 1",
        "INSERT INTO `a.b` VALUES (1, 3)")  # fmt: skip
    code, text = tried(fresh)
    assert code == 2
    assert f"--relearn {fresh.name}.a.b" in text
    code, text = asked(fresh, "schema", fresh.name, "--relearn", f"{fresh.name}.a.b")
    assert code == 0, text


@pytest.mark.long
def test_relearn_takes_names_as_the_server_does(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    """With lower_case_table_names=1."""
    options = {"lower_case_table_names": 1}
    with run_server(MariadbServer(tmp_path / "lower", options=options, owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
        feed.run()
        code, text = asked(feed, "schema", feed.name, "--relearn", f"{feed.name}.Journal")
        assert code == 0, text
