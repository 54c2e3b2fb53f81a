"""A missing SELECT right on a captured table, or on some of its columns, is reported by each reader of the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner, fresh_feed
from faults.test_parked import parked
from faults.test_verify import account, connections_of
from run_verify import run_verify

from changefeed.verify.report import summary
from devstack.kafka import KafkaBroker
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def limited(
    request: pytest.FixtureRequest,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    runner: Runner,
    spark_connect: SparkConnectServer,
) -> Iterator[Feed]:
    """A feed whose user has rights on its two tables, not on the database."""
    server: SqlServer = request.getfixturevalue(request.param)
    with fresh_feed(server, kafka_broker, unique_name, tmp_path, runner) as feed:
        server.execute(
            f"CREATE USER {unique_name}@'%' IDENTIFIED BY 'secret'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {unique_name}@'%'",
            *(f"GRANT SELECT ON {unique_name}.{table} TO {unique_name}@'%'" for table in ("accounts", "journal")),
        )
        feed.connections["MYSQL_FAULTS"] = f"mysql://{unique_name}:secret@127.0.0.1:{server.port}"
        feed.settings["tables"] = {"include": [f"{unique_name}.accounts", f"{unique_name}.journal"]}
        feed.use_connect(spark_connect.url)
        yield feed
        server.execute(f"DROP USER {unique_name}@'%'")


def run_refused(feed: Feed, *arguments: str) -> str:
    done = feed.command(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.extended
def test_select_revoked_on_a_captured_table_is_named_and_nothing_of_it_is_equal(limited: Feed) -> None:
    feed = limited
    feed.write(10)
    feed.run()
    assert run_verify(connections_of(feed)).outcome == "equal"
    feed.settings["tables"] = {"include": [f"{feed.name}.accounts", f"{feed.name}.j*"]}
    feed.configure()
    report = run_verify(connections_of(feed))
    assert report.outcome == "incomplete", summary(report)  # there may be others whose names begin with a j
    assert f"GRANT SELECT ON `{feed.name}`.* TO" in " ".join(summary(report))
    right = f"SELECT{{}} ON {feed.name}.journal"
    for statement, words in (
        (f"REVOKE {right.format('')} FROM", f"may not SELECT from {feed.name}.journal"),
        (f"GRANT {right.format(' (id)')} TO", f"may SELECT only some columns of {feed.name}.journal"),
    ):
        feed.mysql.execute(f"{statement} {feed.name}@'%'")
        words += f": GRANT SELECT ON `{feed.name}`.`journal` TO"
        report = run_verify(connections_of(feed))
        assert report.outcome == "incomplete", summary(report)
        assert account(report, "accounts").outcome == "equal"
        assert words in " ".join(account(report, "journal").reasons)
        assert words in run_refused(feed, "check", feed.name)
        assert words in run_refused(feed, "snapshot", feed.name)
    assert not any(b'"op":"r"' in (record.value or b"") for record in feed.records("accounts"))


def test_a_first_run_names_the_grant_that_is_missing_and_goes_on_when_it_is_there(limited: Feed) -> None:
    feed = limited
    feed.settings["on_table_error"] = "park"
    feed.configure()
    feed.mysql.execute(f"REVOKE SELECT ON {feed.name}.journal FROM {feed.name}@'%'")
    feed.write(5)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "is parked" not in run.text(), "a right is missing, which is no error of a table"
    assert f"may not SELECT from {feed.name}.journal: GRANT SELECT ON `{feed.name}`.`journal`" in run.text()
    assert f"may not SELECT from {feed.name}.journal" in run_refused(feed, "check", feed.name)
    feed.mysql.execute(f"GRANT SELECT ON {feed.name}.journal TO {feed.name}@'%'")
    feed.run()
    feed.check()
    assert feed.command("check", feed.name).returncode == 0
    feed.settings["tables"] = {"include": [f"{feed.name}.*"]}
    feed.configure()
    feed.mysql.execute(
        "SET SESSION sql_log_bin = 0",  # only a user with the right learns its columns
        f"CREATE TABLE {feed.name}.hidden (id INT PRIMARY KEY)",
        "SET SESSION sql_log_bin = 1",
        f"INSERT INTO {feed.name}.hidden VALUES (1)",
    )
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert f"GRANT SELECT ON `{feed.name}`" in run.text()
    assert parked(feed) == []
