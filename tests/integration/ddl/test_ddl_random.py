"""Long random sequences of DDL: applied step by step from the binlog, and equal to information_schema."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pymysql
import pytest
from integration.ddl_follower import Follower, is_same_table, learned_tables
from seeds import choose_seed

from changefeed.binlog.events.table_map import TableMap
from changefeed.ddl import Schemas, SchemaTimeline, read_statement
from changefeed.model.row_shape import fit
from changefeed.model.table_schema import TableSchema
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

STEPS = 500

TYPES = (
    "INT",
    "BIGINT UNSIGNED",
    "TINYINT(1)",
    "DECIMAL(10,2)",
    "DOUBLE PRECISION",
    "BOOL",
    "DATE",
    "DATETIME(3)",
    "TIMESTAMP NULL",
    "YEAR",
    "BIT(7)",
    "CHAR(3)",
    "VARCHAR(20)",
    "VARCHAR(10) CHARACTER SET latin1",
    "VARCHAR(10) COLLATE utf8mb4_bin",
    "CHAR(5) BINARY",
    "NCHAR(4)",
    "TEXT",
    "TEXT(100)",
    "MEDIUMTEXT CHARACTER SET utf8mb4",
    "VARBINARY(9)",
    "BLOB",
    "ENUM('a','b')",
    "ENUM('it''s','x\\'y','z') CHARACTER SET latin1",
    "SET('p','q','r')",
    "JSON",
    "POINT",
    "CHAR(3) CHARACTER SET binary",
)
# None of two bytes: servers spoil labels of ENUM and SET that they convert from or to such.
CHARSETS = ("latin1", "utf8mb4", "utf8mb3", "utf8mb4 COLLATE utf8mb4_unicode_ci", "latin1 COLLATE latin1_bin", "latin2")


class Writer:
    """Makes statements; many are refused by the server, which is fine."""

    def __init__(self, seed: int, database: str) -> None:
        self._random = random.Random(seed)
        self._database = database

    def statement(self) -> str:
        makers: list[tuple[int, Callable[[], str]]] = [
            (12, self._create),
            (60, self._alter),
            (6, lambda: f"DROP TABLE IF EXISTS {self._table()}"),
            (6, lambda: f"RENAME TABLE {self._table()} TO {self._table()}"),
            (4, self._swap),
            (3, lambda: f"CREATE TABLE {self._table()} LIKE {self._table()}"),
            (3, lambda: f"CREATE TABLE {self._table()} AS SELECT * FROM {self._table()}"),
            (2, lambda: f"TRUNCATE TABLE {self._table()}"),
            (2, lambda: f"ALTER DATABASE {self._database} CHARACTER SET {self._random.choice(CHARSETS)}"),
        ]
        weights, choices = zip(*makers, strict=True)
        return self._random.choices(choices, weights)[0]()

    def _table(self) -> str:
        return f"t{self._random.randrange(4)}"

    def _column(self) -> str:
        return self._random.choice("abcdefgh")

    def _type(self) -> str:
        return self._random.choice(TYPES)

    def _index(self) -> str:
        return self._random.choice(["u", "v", f"{self._column()}", f"{self._column()}_2"])

    def _attributes(self) -> str:
        attributes = ("", "", " NOT NULL", " UNIQUE", " DEFAULT 1", " NULL DEFAULT '2020-01-02'", " COMMENT 'it''s'")
        return self._random.choice(attributes)

    def _place(self) -> str:
        return self._random.choice(["", "", " FIRST", f" AFTER {self._column()}"])

    def _create(self) -> str:
        names = self._random.sample("abcdefgh", self._random.randrange(1, 6))
        elements = [f"{name} {self._type()}{self._attributes()}" for name in names]
        if self._random.random() < 0.5:
            elements.append(f"id{names[0]} INT NOT NULL, PRIMARY KEY (id{names[0]})")
        if self._random.random() < 0.3:
            elements.append(f"made INT AS ({len(names)} + 1) VIRTUAL")
        options = f" CHARSET {self._random.choice(CHARSETS)}" if self._random.random() < 0.4 else ""
        again = self._random.choice(["", "IF NOT EXISTS "])
        return f"CREATE TABLE {again}{self._table()} ({', '.join(elements)}){options}"

    def _swap(self) -> str:
        one, other = self._table(), self._table()
        return f"RENAME TABLE {one} TO aside, {other} TO {one}, aside TO {other}"

    def _alter(self) -> str:
        count = self._random.choice([1, 1, 2, 3])
        sql = f"ALTER TABLE {self._table()} {', '.join(self._clause() for _ in range(count))}"
        # Two charsets at once, and a TEXT or BLOB made beside CONVERT TO, leave the table unknown on purpose.
        charsets = sql.count("CONVERT TO") + sql.count("DEFAULT CHARACTER")
        beside = "CONVERT TO" in sql and ("TEXT" in sql or "BLOB" in sql)
        return self._alter() if charsets > 1 or beside else sql

    def _clause(self) -> str:
        name, other = self._column(), self._column()
        clauses = [
            f"ADD {name} {self._type()}{self._attributes()}{self._place()}",
            f"ADD COLUMN {name} {self._type()}{self._place()}",
            f"ADD {name} {self._type()}{self._place()}",
            f"DROP {name}",
            f"MODIFY {name} {self._type()}{self._attributes()}{self._place()}",
            f"CHANGE {name} {other} {self._type()}{self._place()}",
            f"RENAME COLUMN {name} TO {other}",
            f"ADD PRIMARY KEY ({name}, {other})",
            "DROP PRIMARY KEY",
            f"CONVERT TO CHARACTER SET {self._random.choice(CHARSETS)}",
            f"DEFAULT CHARACTER SET {self._random.choice(CHARSETS)}",
            f"RENAME TO {self._table()}",
            f"ADD INDEX ({name})",
            f"ADD UNIQUE ({name}, {other})",
            f"ADD UNIQUE {self._index()} ({name})",
            f"DROP INDEX {self._index()}",
            f"RENAME INDEX {self._index()} TO {self._index()}",
            f"ALTER {name} DROP DEFAULT",
            f"ALTER {name} SET DEFAULT 1",
        ]
        return self._random.choice(clauses)


def follow_random_ddl(server: SqlServer, name: str) -> tuple[int, int]:
    """Statements accepted, and table maps fitted."""
    seed = choose_seed()
    writer = Writer(seed, name)
    follower = Follower(server)
    timeline = SchemaTimeline(Schemas(follower.server))
    expected = []
    accepted = table_maps = 0
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {name}")
        if follower.server.is_mariadb:
            cursor.execute("SET SESSION binlog_format = ROW")
        for _ in range(STEPS):
            sql = writer.statement()
            try:
                cursor.execute(sql)
                accepted += 1
            except pymysql.MySQLError:
                continue
            with suppress(pymysql.MySQLError):
                cursor.execute("INSERT INTO t0 () VALUES ()")
            for logged in follower.statements():
                if isinstance(logged, TableMap):
                    schema = timeline.latest.lookup(logged.database, logged.table)
                    assert schema is not None
                    fitted = fit(schema, logged.columns, is_mariadb=follower.server.is_mariadb)
                    # A UNIQUE key over a TEXT gives rows of MariaDB a column that it lists nowhere.
                    hidden = follower.server.is_mariadb and fitted.columns[: len(schema.columns)] == schema.columns
                    assert fitted is schema or hidden
                    assert [column.nullable for column in schema.columns] == [
                        column.nullable for column in logged.columns[: len(schema.columns)]
                    ]
                    table_maps += 1
                    continue
                timeline = timeline.advance(
                    logged.coordinates, read_statement(logged.sql, logged.session, follower.server)
                )
                expected.append((logged.coordinates, learned_tables(timeline.latest)))
            there, known = follower.list_tables(name), learned_tables(timeline.latest)
            different = [(table, there.get(table), known.get(table)) for table in there.keys() | known.keys()]
            different = [item for item in different if not is_same_table(item[1], item[2])]
            assert not different, f"CHANGEFEED_SEED={seed}: after {sql}:\n" + "\n".join(
                map(_first_difference, different)
            )
        cursor.execute(f"DROP DATABASE {name}")
    follower.close()
    again = SchemaTimeline.from_json(json.loads(json.dumps(timeline.to_json())))
    assert again == timeline
    for (_, tables), (coordinates, _) in pairwise(expected):
        assert learned_tables(again.at(coordinates)) == tables
    return accepted, table_maps


def _first_difference(item: tuple[object, TableSchema | None, TableSchema | str | None]) -> str:
    """A table's name, and what differs in it, short enough for the log of a test run."""
    name, there, known = item
    if not isinstance(there, TableSchema) or not isinstance(known, TableSchema):
        return f"{name}: there {there}\n  learned {known}"
    if len(there.columns) != len(known.columns):
        return f"{name}: there {there.columns}\n  learned {known.columns}"
    pairs = [(own, mine) for own, mine in zip(there.columns, known.columns, strict=True) if own != mine]
    rest = [replace(each, columns=()) for each in (there, known)]
    return f"{name}: (there, learned) {pairs}\n  there {rest[0]}\n  learned {rest[1]}"


@pytest.mark.random
def test_random_ddl_on_mysql_agrees_with_information_schema(mysql_server: MysqlServer, unique_name: str) -> None:
    accepted, table_maps = follow_random_ddl(mysql_server, unique_name)
    print(f"{accepted} of {STEPS} statements accepted, {table_maps} table maps fitted")
    assert accepted > 50


@pytest.mark.random
def test_random_ddl_on_mariadb_agrees_with_information_schema(mariadb_server: MariadbServer, unique_name: str) -> None:
    accepted, table_maps = follow_random_ddl(mariadb_server, unique_name)
    print(f"{accepted} of {STEPS} statements accepted, {table_maps} table maps fitted")
    assert accepted > 50
