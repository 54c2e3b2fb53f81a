"""Changes in statement format, without row events: those of other tables pass, none of captured tables is lost
silently."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.feed import Feed, Runner, fresh_feed

from devstack.kafka import KafkaBroker
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

TERMINAL = 2
STATEMENT_FORMAT = "SET SESSION binlog_format = STATEMENT"


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def either(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    """A feed on either server, with a second database that its pipeline does not capture, and a fresh binlog file."""
    server: SqlServer = request.getfixturevalue(request.param)
    with fresh_feed(server, kafka_broker, unique_name, tmp_path, runner) as feed:
        server.execute(f"CREATE DATABASE {other(feed)}", f"CREATE TABLE {other(feed)}.t (id INT PRIMARY KEY)")
        yield feed
        server.execute(f"DROP DATABASE IF EXISTS {other(feed)}")


def other(feed: Feed) -> str:
    return f"`{feed.name}_other`"


def execute(feed: Feed, *statements: str) -> None:
    """In one session in statement format, whose default database is one that no pipeline captures."""
    feed.mysql.execute(STATEMENT_FORMAT, f"USE {other(feed)}", *statements)


def refusal(feed: Feed) -> str:
    run = feed.begin()
    assert run.result() == TERMINAL, run.text()
    return run.text()


def published_statements(feed: Feed, table: str) -> list[Any]:
    """The SQL of the statement records in partition 0 of a table's topic, and the rows between them."""
    values = [json.loads(record.value) for record in feed.records(table) if record.partition == 0 and record.value]
    return [value.get("sql") or value.get("ddl") or value["after"] for value in values if value.get("op") != "t"]


@pytest.mark.extended
def test_statement_on_other_tables_does_not_fail_the_run(either: Feed) -> None:
    feed = either
    heartbeat = "INSERT INTO mysql.{} VALUES (1, {}) ON DUPLICATE KEY UPDATE value = {}"
    feed.mysql.execute(
        "CREATE TABLE IF NOT EXISTS mysql.rds_heartbeat2 (id INT PRIMARY KEY, value BIGINT)",
        STATEMENT_FORMAT,
        "USE mysql",
        "INSERT INTO rds_heartbeat2 (id, value) VALUES (1, 5) ON DUPLICATE KEY UPDATE value = 5",
        heartbeat.format("rds_heartbeat2", 7, 7),
        "DELETE FROM mysql.rds_heartbeat2",
        "DROP TABLE mysql.rds_heartbeat2",
    )
    checksum = (
        f"REPLACE INTO {other(feed)}.checksums SELECT COUNT(*), COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32(CONCAT_WS('#', "
        f"`id`, `version`)) AS UNSIGNED)), 10, 16)), 0) FROM `{feed.name}`.`accounts` /*checksum chunk*/"
    )
    execute(
        feed,
        "CREATE TABLE checksums (cnt INT, crc VARCHAR(40))",
        "CREATE TABLE copy SELECT * FROM checksums",
        checksum,
        "REPLACE INTO t VALUES (1), (2)",
        "UPDATE t SET id = id + 10",
        "DELETE FROM t",
    )
    feed.write(5)
    feed.run()
    feed.check()


def test_statement_on_a_captured_table_fails_the_run_with_a_remedy(either: Feed) -> None:
    feed = either
    feed.mysql.execute(
        "SET GLOBAL log_bin_trust_function_creators = 1",
        f"USE {other(feed)}",
        "CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC BEGIN INSERT INTO t VALUES (x); RETURN x; END",
    )
    feed.settings["start"] = "latest"
    feed.configure()
    feed.run()
    execute(feed, f"SELECT {other(feed)}.f(1)")
    text = refusal(feed)
    assert f"SELECT {other(feed)}.`f`(1)" in text
    assert "does not say which tables it writes" in text
    assert "statements: publish" in text
    feed.settings["statements"] = "skip"
    feed.configure()
    feed.run()
    feed.settings["statements"] = "fail"
    feed.configure()
    execute(feed, f"CREATE TABLE `{feed.name}`.filled SELECT 1 AS id")
    assert "`.`filled`, which the pipeline captures" in refusal(feed)


@pytest.mark.extended
def test_statement_format_is_read_if_the_pipeline_allows_it(either: Feed, spark_connect: SparkConnectServer) -> None:
    feed = either
    ((before,),) = feed.mysql.execute("SELECT @@GLOBAL.binlog_format")
    feed.run()
    try:
        feed.mysql.execute("SET GLOBAL binlog_format = 'MIXED'")
        assert "statements: publish" in refusal(feed)
        feed.settings |= {"statements": "publish", "publish_ddl": "inline"}
        feed.configure()
        feed.mysql.execute(
            f"USE `{feed.name}`",
            "SET GLOBAL log_bin_trust_function_creators = 1",
            "CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC BEGIN UPDATE accounts SET version = x; RETURN x; END",
            "INSERT INTO accounts VALUES (1, 1, 'a')",
            "DO f(2)",
            "CREATE TABLE filled SELECT id FROM accounts",
        )
        feed.use_connect(spark_connect.url)
        feed.run(spark=True)
    finally:
        feed.mysql.execute(f"SET GLOBAL binlog_format = '{before}'")
    unknown = f"SELECT `{feed.name}`.`f`(2)"
    assert published_statements(feed, "accounts")[-2:] == ["INSERT INTO accounts VALUES (1, 1, 'a')", unknown]
    assert published_statements(feed, "journal")[-1:] == [unknown]
    assert [text.split(" /*")[0] for text in published_statements(feed, "filled")[-2:]] == [
        "CREATE TABLE filled SELECT id FROM accounts"
    ] * 2
