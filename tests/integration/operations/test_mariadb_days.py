"""A pipeline on a MariaDB with default settings: an operator's actions over some weeks, and their results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.command import Command
from integration.command_forks import CommandForks
from integration.followed import Followed
from integration.topic_rows import select_rows, topic_rows
from kafka import KafkaAdminClient

from changefeed.errors import FollowerError
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


@pytest.fixture
def changefeed(
    tmp_path: Path,
    mariadb_server: MariadbServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    spark_connect: SparkConnectServer,
    forks: CommandForks,
) -> Iterator[Command]:
    mariadb_server.execute(f"CREATE DATABASE `{unique_name}`", "FLUSH BINARY LOGS")
    spark = f"{{connect: '{spark_connect.url}'}}"
    command = Command(
        tmp_path, unique_name, unique_name, mariadb_server, kafka_broker, server_id, spark, forks, mask=""
    )
    yield command
    mariadb_server.execute(f"DROP DATABASE `{unique_name}`")


def head(changefeed: Command) -> str:
    file, position, *_ = changefeed.server.execute("SHOW BINLOG STATUS")[0]
    return f"{file}:{position}"


def test_backfill_of_published_rows_works_after_a_seek_over_ddl(changefeed: Command) -> None:
    name, server, database = changefeed.name, changefeed.server, changefeed.database
    changefeed.begin()
    start = head(changefeed)
    server.execute("INSERT INTO t VALUES (3, 'three')", database=database)
    end = head(changefeed)
    ran = changefeed("run", name)
    assert ran.exit_code == 0, ran
    server.execute("ALTER TABLE t DROP COLUMN v, ADD COLUMN n INT", "INSERT INTO t VALUES (4, 4)", database=database)
    done = changefeed("seek", name, "latest", "--why", "a test", "--yes")
    assert done.exit_code == 0, done
    server.execute("INSERT INTO t VALUES (5, 5)", database=database)
    ran = changefeed("run", name)
    assert ran.exit_code == 0, ran
    assert json.loads(changefeed.records("t")[-1].value)["after"] == {"id": 5, "n": 5}

    again = changefeed("backfill", name, "--from", start, "--to", end, "--run-id", "again")
    assert again.exit_code == 0, again
    (record,) = changefeed.records("t.replay")
    assert json.loads(record.value)["after"] == {"id": 3, "v": "three"}


def test_no_command_after_a_snapshot_reports_a_newer_changefeed(changefeed: Command) -> None:
    name, server, database = changefeed.name, changefeed.server, changefeed.database
    server.execute("CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)", database=database)
    changefeed.begin()
    outcomes = [changefeed(*words) for words in (("run", name), ("snapshot", name), ("status", name), ("check", name))]
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 0, 0], outcomes
    assert [outcome for outcome in outcomes if "newer changefeed" in outcome.err + outcome.out] == []
    assert "snapshot" in changefeed.logged(name)
    assert topic_rows(changefeed.records("u")) == select_rows(server, database, "u")


def test_check_run_and_prune_accept_sequences_and_a_snapshot_skips_them(changefeed: Command) -> None:
    name, server, database = changefeed.name, changefeed.server, changefeed.database
    changefeed.begin()
    server.execute("CREATE SEQUENCE numbers", "SELECT NEXTVAL(numbers)", database=database)
    checked = changefeed("check", name)
    assert checked.exit_code == 0, checked
    assert f"2 tables: {database}.numbers, {database}.t" in checked.out
    assert changefeed("run", name).exit_code == 0
    (row,) = changefeed.records("numbers")
    assert json.loads(row.value)["after"]["next_not_cached_value"] == 1001

    pruned = changefeed("prune", name)
    assert pruned.exit_code == 0, pruned
    assert f"{database}.numbers" not in pruned.out
    planned = changefeed("snapshot", name, "--plan")
    assert planned.exit_code == 0, planned
    assert "numbers" not in planned.out


def test_a_temporary_table_of_a_mixed_session_stops_nothing(changefeed: Command) -> None:
    name, server, database = changefeed.name, changefeed.server, changefeed.database
    changefeed.begin()
    server.execute(
        "SET binlog_format = MIXED",
        "CREATE TEMPORARY TABLE passing (id INT)",
        "INSERT INTO passing VALUES (7)",
        "UPDATE passing SET id = 8",
        "DROP TEMPORARY TABLE passing",
        database=database,
    )
    ran = changefeed("run", name)
    assert ran.exit_code == 0, ran
    server.execute(
        "SET binlog_format = MIXED",
        "CREATE TEMPORARY TABLE passing AS SELECT 9 AS id",
        "INSERT INTO t SELECT id, 'from it' FROM passing",
        database=database,
    )
    changefeed("run", name).is_refused("SourceError", f"it writes `{database}`.`t`", "STATEMENT or MIXED")


@pytest.mark.long
def test_table_versioned_by_transactions_is_reported(changefeed: Command) -> None:
    name, server, database = changefeed.name, changefeed.server, changefeed.database
    changefeed.begin()
    server.execute(
        "CREATE TABLE precise (id INT PRIMARY KEY, "
        "a BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, b BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, "
        "PERIOD FOR SYSTEM_TIME (a, b)) WITH SYSTEM VERSIONING",
        "INSERT INTO precise (id) VALUES (1)",
        database=database,
    )
    checked = changefeed("check", name)
    assert checked.exit_code == 1, checked
    assert f"{database}.precise: versioned by transactions" in checked.out + checked.err
    ran = changefeed("run", name)
    ran.is_refused("SourceError", f"it writes `{database}`.`precise`", "versioned by transactions", "TIMESTAMP(6)")
    assert "A session ran with" not in ran.err
    changefeed.write("statements: skip\n")
    assert changefeed("run", name).exit_code == 0


@pytest.fixture
def followed(
    mariadb_server: MariadbServer,
    mariadb_follower: MariadbServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
) -> Iterator[Followed]:
    pair = Followed(unique_name, mariadb_server, mariadb_follower, kafka_broker, tmp_path)
    yield pair
    pair.drop()


@pytest.mark.long
def test_a_follower_goes_on_when_a_versioned_table_is_excluded(followed: Followed) -> None:
    database = f"{followed.name}_a"
    followed.source.execute(
        f"CREATE DATABASE {database}",
        f"USE {database}",
        "CREATE TABLE plain (id INT PRIMARY KEY)",
        "CREATE TABLE versions (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
        "INSERT INTO versions VALUES (1, 1)",
        "INSERT INTO plain VALUES (1)",
    )
    followed.publish()
    with pytest.raises(FollowerError, match=r"system-versioned.*tables\.exclude"):
        followed.follow()
    followed.configure(tables={"include": [f"{followed.name}*.*"], "exclude": [f"{database}.versions"]})
    followed.source.execute(f"INSERT INTO {database}.plain VALUES (2)", f"UPDATE {database}.versions SET v = 2")
    followed.publish()
    assert followed.follow().rows == 2
    assert followed.follower.execute(f"SELECT id FROM {database}.plain ORDER BY id") == [(1,), (2,)]
    assert followed.follower.execute(f"SELECT * FROM {database}.versions") == []


@pytest.mark.long
def test_a_column_of_keys_and_rows_that_is_renamed_is_known_by_both_names(changefeed: Command) -> None:
    name, server, database = changefeed.name, changefeed.server, changefeed.database
    changefeed.begin()

    def settings(code: str, state: str) -> None:
        changefeed.write(f"keys: {{'*.orders': [{code}]}}\nrows: {{'*.orders': \"{state} <> 'new'\"}}\n")

    settings("code", "state")
    server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, code INT, state VARCHAR(9))",
        "INSERT INTO orders VALUES (1, 10, 'paid'), (2, 20, 'new')",
        "ALTER TABLE orders RENAME COLUMN code TO number, CHANGE state status VARCHAR(9)",
        "INSERT INTO orders VALUES (3, 30, 'paid'), (4, 40, 'new')",
        database=database,
    )
    ran = changefeed("run", name)
    assert ran.exit_code == 0, ran
    server.execute(
        "INSERT INTO orders VALUES (5, 50, 'paid'), (6, 60, 'new')",
        "ALTER TABLE orders RENAME COLUMN number TO nr, RENAME COLUMN status TO stage",
        "INSERT INTO orders VALUES (7, 70, 'paid'), (8, 80, 'new')",
        database=database,
    )
    settings("nr", "stage")
    ran = changefeed("run", name)
    assert ran.exit_code == 0, ran
    keys = [json.loads(record.key) for record in changefeed.records("orders")]
    assert sorted(keys, key=str) == [{"code": 10}, {"nr": 70}, {"number": 30}, {"number": 50}]

    settings("nobody", "stage")
    server.execute("INSERT INTO orders VALUES (9, 90, 'paid')", database=database)
    changefeed("run", name).is_refused("SettingsError", "'nobody'", "no such column")


def test_the_schemas_are_shown_from_the_stored_copy_where_their_topic_is_gone(changefeed: Command) -> None:
    name = changefeed.name
    changefeed.begin()
    assert changefeed("run", name).exit_code == 0
    shown = changefeed("schema", name)
    assert f"`{changefeed.database}`.`t` (primary key: id)" in shown.out
    with KafkaAdminClient(bootstrap_servers=changefeed.broker.bootstrap) as admin:
        admin.delete_topics([f"changefeed.{name}.schema-history"])
    assert changefeed("schema", name) == shown
    relearned = changefeed("schema", name, "--relearn", f"{changefeed.database}.t")
    first, _, rest = relearned.out.partition("\n")
    assert (relearned.exit_code, rest) == (0, shown.out), relearned
    assert f"{changefeed.database}.t read from the server, for rows from" in first
