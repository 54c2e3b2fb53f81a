"""Stock servers: tables before a statement, derived backwards from the current ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
from integration.pipeline.test_schema_history import TYPES, Script, head_of, job_of, rows, whole_files
from seeds import choose_seed

from changefeed.ddl.history import SchemaHistory
from changefeed.pipeline.schema_learning import learn_history
from changefeed.pipeline.unknown_tables import apply_answers, unknown_ranges
from changefeed.spark.stages.decode_task import DecodeTask
from devstack.sql_server import SqlServer

TABLE = """(id INT PRIMARY KEY, name VARCHAR(40), size ENUM('s','m'), note VARCHAR(20), twin VARCHAR(20),
    amount INT UNSIGNED, at DATE)"""
ROW = "(1, 'name', 'm', 'note', 'twin', 4000000000, '2026-01-02')"

HARMLESS = {
    "add index": "ALTER TABLE {t} ADD INDEX by_name (name)",
    "create index": "CREATE INDEX by_note ON {t} (note)",
    "add unique": "ALTER TABLE {t} ADD UNIQUE (name)",
    "drop index": "ALTER TABLE {t} DROP INDEX by_amount",
    "table comment": "ALTER TABLE {t} COMMENT = 'a comment'",
    "engine": "ALTER TABLE {t} ENGINE = InnoDB",
    "auto_increment": "ALTER TABLE {t} AUTO_INCREMENT = 100",
    "default": "ALTER TABLE {t} ALTER COLUMN note SET DEFAULT 'x'",
    "row format": "ALTER TABLE {t} ROW_FORMAT = DYNAMIC",
    "partitions": "ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 2",
    "add column": "ALTER TABLE {t} ADD COLUMN more INT NOT NULL DEFAULT 7",
    "add column first": "ALTER TABLE {t} ADD COLUMN more VARCHAR(9) DEFAULT 'é' FIRST, ADD COLUMN less INT AFTER name",
    "rename column": "ALTER TABLE {t} RENAME COLUMN note TO remark",
    "rename table": "RENAME TABLE {t} TO {t}2, {t}2 TO {t}3, {t}3 TO {t}",
    "truncate": "TRUNCATE TABLE {t}",
    "default charset": "ALTER TABLE {t} DEFAULT CHARACTER SET latin1",
    "exchange of names": "CREATE TABLE {t}n LIKE {t}; ALTER TABLE {t}n ADD COLUMN more INT; "
    "RENAME TABLE {t} TO {t}o, {t}n TO {t}; DROP TABLE {t}o",
}
"""Statements that do not change the meaning of earlier rows, on every server."""
SHOWN = {
    "modify type": "ALTER TABLE {t} MODIFY amount BIGINT",
    "change": "ALTER TABLE {t} CHANGE note remark VARCHAR(200) CHARACTER SET latin1",
    "modify place": "ALTER TABLE {t} MODIFY at DATE FIRST",
    "convert": "ALTER TABLE {t} CONVERT TO CHARACTER SET latin1",
    "drop column": "ALTER TABLE {t} DROP COLUMN at",
    "drop column of many": "ALTER TABLE {t} DROP COLUMN name",
}
"""Statements before which TABLE_MAPs of MySQL show the rest."""
ON_MARIADB = {"modify place", "drop column"}
"""Those for which MariaDB's TABLE_MAPs suffice, which show neither signs nor character sets."""
UNKNOWN = {
    "enum": "ALTER TABLE {t} MODIFY size ENUM('m','s','l')",
    "drop twin": "ALTER TABLE {t} DROP COLUMN twin",
    "two columns dropped": "ALTER TABLE {t} DROP COLUMN at, DROP COLUMN amount",
    "drop table": "DROP TABLE {t}",
    "drop key": "ALTER TABLE {t} DROP PRIMARY KEY",
    "other key": "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, name)",
    "drop column of the key": "ALTER TABLE {t} DROP COLUMN id",
}
"""Statements before which the rows' schema cannot be derived."""


def pair(request: pytest.FixtureRequest, flavour: str) -> tuple[SqlServer, SqlServer]:
    """A server with FULL metadata and a stock one."""
    return request.getfixturevalue(f"full_{flavour}_server"), request.getfixturevalue(f"{flavour}_server")


def play(server: SqlServer, database: str, statements: dict[str, str]) -> DecodeTask:
    """A table for each statement, with rows before and after it; the job that reads all of it."""
    server.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
    for number in range(len(statements)):
        table = f"{database}.t{number}"
        server.execute(f"CREATE TABLE {table} {TABLE}", f"CREATE INDEX by_amount ON {table} (amount)")
    start = head_of(server)
    for number, sql in enumerate(statements.values()):
        table = f"{database}.t{number}"
        server.execute(f"INSERT INTO {table} VALUES {ROW}", f"UPDATE {table} SET note = NULL")
        if number % 5 == 0:
            server.execute("FLUSH BINARY LOGS")
        server.execute(*sql.format(t=table).split("; "))
    return job_of(server, database, start, 900_000 + random.randrange(10_000) * 10)


def read_history(job: DecodeTask) -> SchemaHistory:
    with job.connections.session() as session:
        return learn_history(session, job.server_uuid, job.start)


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_rows_before_a_statement_equal_full_metadata(
    flavour: str, unique_name: str, request: pytest.FixtureRequest
) -> None:
    statements = HARMLESS | {name: sql for name, sql in SHOWN.items() if flavour == "mysql" or name in ON_MARIADB}
    if flavour == "mariadb":
        statements = {name: sql for name, sql in statements.items() if "latin1" not in sql or name == "default charset"}
    full, stock = pair(request, flavour)
    expected_job, job = play(full, unique_name, statements), play(stock, unique_name, statements)
    history = read_history(job)
    assert unknown_ranges(job.pipeline, history) == []
    assert rows(replace(job, history=history), whole_files(job)) == rows(expected_job, whole_files(expected_job))


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_unproved_tables_are_listed_with_their_rows(
    flavour: str, unique_name: str, request: pytest.FixtureRequest
) -> None:
    statements = UNKNOWN | {name: sql for name, sql in SHOWN.items() if flavour == "mariadb" and name not in ON_MARIADB}
    _, stock = pair(request, flavour)
    job = play(stock, unique_name, statements)
    ranges = unknown_ranges(job.pipeline, read_history(job))
    assert [(each.table, each.rows, each.answer) for each in ranges] == [
        (f"{unique_name}.t{number}", 2, "stop") for number in range(len(statements))
    ]


class Migrations(Script):
    """A script with other changes of tables by applications and migrations."""

    def _step(self) -> Iterator[str]:
        pick = self._random
        name = pick.choice(sorted(self._tables))
        columns = self._tables[name]
        table = f"`{self._database}`.`{name}`"
        own = [column for column in columns if column != "id"]
        match pick.randrange(16):
            case 0 if own:
                column, kind = pick.choice(own), pick.choice(TYPES)
                columns[column] = kind
                yield f"UPDATE {table} SET {column} = NULL"
                yield f"ALTER TABLE {table} MODIFY {column} {kind}"
            case 1 if own:
                old, new, kind = pick.choice(own), self._name("m"), pick.choice(TYPES)
                items = [(key, value) for key, value in columns.items() if key != old]
                self._tables[name] = dict([items[0], (new, kind), *items[1:]])
                yield f"UPDATE {table} SET {old} = NULL"
                yield f"ALTER TABLE {table} CHANGE {old} {new} {kind} AFTER {items[0][0]}"
            case 2 if own:
                yield f"ALTER TABLE {table} ADD INDEX {self._name('i')} ({pick.choice(own)}), COMMENT = 'x'"
            case 3 if len(own) > 1:
                gone, column = pick.choice(own), self._name("c")
                del columns[gone]
                columns[column] = pick.choice(TYPES)
                yield f"ALTER TABLE {table} DROP COLUMN {gone}, ADD COLUMN {column} {columns[column]}"
            case 4:
                yield f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY)"
            case 5 if not any(kind.startswith("ENUM") for kind in columns.values()):  # servers spoil their labels
                yield f"ALTER TABLE {table} CONVERT TO CHARACTER SET {pick.choice(['latin1', 'utf8mb4'])}"
            case 6:
                old = self._name("p")
                listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
                yield f"RENAME TABLE {table} TO `{self._database}`.{old}"
                yield f"CREATE TABLE {table} ({listed})"
                yield f"DROP TABLE `{self._database}`.{old}"
            case 7 if len(self._tables) > 1:
                other = pick.choice(sorted(self._tables.keys() - {name}))
                self._tables[name], self._tables[other] = self._tables[other], self._tables[name]
                between = f"`{self._database}`.between_both"
                yield (
                    f"RENAME TABLE {table} TO {between}, `{self._database}`.`{other}` TO {table}, "
                    f"{between} TO `{self._database}`.`{other}`"
                )
            case _:
                yield from super()._step()
                return
        yield from self._changes(name)


def differences(expected: list[Any], found: list[Any], left_out: set[str]) -> list[Any]:
    """By table the first row that differs; of partly ``left_out`` tables, the first row that was never written."""
    wrong = []
    for table in dict.fromkeys(row[0] for row in (*expected, *found)):
        theirs, ours = ([row for row in every if row[0] == table] for every in (expected, found))
        if table not in left_out:
            wrong += [pair for pair in zip_longest(theirs, ours) if pair[0] != pair[1]][:1]
        else:
            rest = iter(theirs)
            wrong += [(None, row) for row in ours if row not in rest][:1]
    return wrong


@pytest.mark.random
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_rows_from_any_position_equal_full_metadata_or_are_listed(
    flavour: str, unique_name: str, server_id: int, request: pytest.FixtureRequest
) -> None:
    seed = choose_seed()
    begins = random.Random(seed).randrange(300)
    jobs = []
    for server in pair(request, flavour):
        server.execute(f"CREATE DATABASE `{unique_name}` CHARACTER SET utf8mb4")
        start = head_of(server)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'")
            for number, statement in enumerate(Migrations(unique_name, seed).statements(120)):
                if number == begins:
                    start = head_of(server)
                if number in (100, 200):
                    cursor.execute("FLUSH BINARY LOGS")
                cursor.execute(statement)
        jobs.append(job_of(server, unique_name, start, server_id))
    full_job, job = jobs
    history = read_history(job)
    left_out = {each.table.split(".")[1] for each in unknown_ranges(job.pipeline, history)}
    lenient = job.pipeline.model_copy(update={"unknown_schema": "begin"})
    found = rows(replace(job, history=apply_answers(lenient, history)), whole_files(job))
    expected = rows(full_job, whole_files(full_job))
    print(f"{len(expected)} rows, {len(found)} found, unknown: {sorted(left_out)}")
    assert differences(expected, found, left_out) == []
