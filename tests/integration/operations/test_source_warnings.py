"""Warnings of `changefeed check` before a run, and runs that confirm them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from integration.command import WRONG_PASSWORD, Command

from devstack.port import free_port
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)

RDS = "CREATE TABLE mysql.rds_configuration (name VARCHAR(100), value VARCHAR(100), description VARCHAR(300))"


@pytest.fixture
def command(spare: Command, spark_connect: SparkConnectServer) -> Command:
    """A pipeline on a server with its default settings, and a table with a key in it."""
    spare.mask, spare.spark = "", f"{{connect: '{spark_connect.url}'}}"
    spare.server.execute(
        "CREATE TABLE plain (id INT PRIMARY KEY, number BIGINT UNSIGNED, text TEXT)", database=spare.database
    )
    spare.write()
    return spare


@pytest.fixture
def rds(command: Command) -> Iterator[Command]:
    """The same, with the table that Amazon's servers have."""
    command.server.execute(RDS, "INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', NULL, '')")
    yield command
    command.server.execute("DROP TABLE mysql.rds_configuration")


def warnings_of(command: Command) -> str:
    """The warnings of a check."""
    checked = command("check")
    assert (checked.exit_code, checked.err) == (0, ""), checked
    return checked.out


def test_row_image_other_than_full_is_a_warning_that_names_missing_columns(command: Command) -> None:
    assert "binlog_row_image" not in warnings_of(command)
    try:
        for image, missing in (("MINIMAL", "DELETE with its key"), ("NOBLOB", "without the BLOB and TEXT columns")):
            command.server.execute(f"SET GLOBAL binlog_row_image = '{image}'")
            checked = warnings_of(command)
            assert f"binlog_row_image is '{image}'" in checked
            assert missing in checked
    finally:
        command.server.execute("SET GLOBAL binlog_row_image = 'FULL'")


def test_retention_of_rds_is_its_own_setting_and_not_known_without_it(rds: Command) -> None:
    assert "`binlog retention hours`, which is not set" in warnings_of(rds)
    assert rds("run", rds.name).exit_code in (0, 3)
    lag = json.loads(rds("lag", rds.name, "--json").out)
    assert (lag["retention_headroom_seconds"], lag["retention_unlimited"]) == (None, None)
    rds.server.execute("UPDATE mysql.rds_configuration SET value = '24'")
    assert "binlog retention hours" not in warnings_of(rds)
    lag = json.loads(rds("lag", rds.name, "--json").out)
    assert (lag["retention_headroom_seconds"], lag["retention_unlimited"]) == (24 * 3600, False)


def test_first_reachable_host_of_a_list_is_the_source(command: Command) -> None:
    address, closed = f"127.0.0.1:{command.server.port}", f"127.0.0.1:{free_port()}"

    def use(hosts: str) -> None:
        command.connect(mysql=command.server.url.replace(address, hosts))

    for hosts in (f"{closed},{address}", f"{closed}%2C127.0.0.1%2C{address}"):
        use(hosts)
        checked = command("check")
        assert checked.exit_code == 0, checked
        assert f"@{address}: " in checked.out
    use(f"{closed},localhost:1")
    command("check").is_refused("SourceUnavailableError", "no host of the source", closed, "localhost:1")
    command("run", command.name).is_refused("SourceUnavailableError", "no host of the source")


def test_host_that_refuses_the_login_does_not_lead_to_the_next(command: Command) -> None:
    """It is alive: the next one may be an older copy of the source."""
    address = f"127.0.0.1:{command.server.port}"
    user, _, _ = command.server.url.rpartition(":")[0].rpartition("@")[0].rpartition(":")
    command.connect(mysql=f"{user}:{WRONG_PASSWORD}@{address},localhost:{command.server.port}")
    command("check").is_refused("SourceLoginError", "Access denied", f"MySQL at {address} refuses user")


def test_signed_numbers_and_empty_deletes_are_warned_of_and_published_so(command: Command) -> None:
    command.write("format: flat\n")
    command.server.execute(
        "CREATE TABLE big (id BIGINT UNSIGNED PRIMARY KEY, small BIGINT)",
        "CREATE TABLE keyless (line INT)",
        database=command.database,
    )
    checked = warnings_of(command)
    database = command.database
    assert f"2 BIGINT UNSIGNED columns are written as signed numbers: {database}.big.id (in the key), " in checked
    assert f"{database}.plain.number. Values of 2^63 and more are negative" in checked
    assert f"1 tables without a key in a format whose deletes have no value: {database}.keyless" in checked
    assert command("run", command.name).exit_code in (0, 3)
    command.server.execute(
        "INSERT INTO big VALUES (18446744073709551615, 1)",
        "INSERT INTO keyless VALUES (1)",
        "DELETE FROM keyless",
        database=database,
    )
    assert command("run", command.name).exit_code == 0
    assert [record.key for record in command.records("big")] == [b'{"id":-1}']
    assert (None, None) in [(record.key, record.value) for record in command.records("keyless")]
    command.write("format: {name: flat, delete.tombstone.handling.mode: rewrite}\nvalues: {bigint_unsigned: number}\n")
    checked = warnings_of(command)
    assert "signed numbers" not in checked
    assert "deletes have no value" not in checked


def test_patterns_that_match_no_table_are_warned_of(command: Command) -> None:
    command.write(
        "rows: {'*.orders': 'id > 1', '*.plain': 'id > 1'}\n"
        "format: {name: debezium, message.key.columns: '(.*).lines:id;(.*).plain:number'}\n"
        "outbox: {tables: ['*.events']}\n"
    )
    path = command.pipelines / f"{command.name}.yaml"
    text = path.read_text().replace(".*']}", ".*'], exclude: ['shop.audit_*']}")
    path.write_text(text.replace("{partitions: 2}", "{partitions: 2, routes: [{match: '*.lines', topic: lines}]}"))
    checked = warnings_of(command)
    for pattern in (
        "'*.orders' in rows matches no table that the pipeline captures",
        "'(.*).lines' in message.key.columns matches no table",
        "'*.events' in outbox.tables matches no table",
        "'*.lines' in topics.routes matches no table",
        "'shop.audit_*' in tables.exclude matches no table of the source",
    ):
        assert pattern in checked
    assert "plain' in" not in checked
