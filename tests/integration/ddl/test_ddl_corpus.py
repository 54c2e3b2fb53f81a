"""Every clause of CREATE, ALTER, RENAME and DROP, run on both servers and read from their binlogs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
from integration.ddl_follower import Follower, is_same_table, learned_tables

from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.programs.bound_table import bind
from changefeed.ddl import Kind, Schemas, TableName, read_statement
from changefeed.errors import SchemaError
from changefeed.model.row_shape import fit
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

MEASURES = ("length", "precision", "scale", "datetime_precision")
CORPUS = Path(__file__).parents[1] / "ddl_corpus"


@dataclass(frozen=True)
class Topic:
    title: str
    statements: list[tuple[str, str]]
    """(flavour or '', statement)"""


def topics() -> Iterator[Topic]:
    for path in sorted(CORPUS.glob("*.sql")):
        for part in re.split(r"^# title: ", path.read_text(), flags=re.MULTILINE)[1:]:
            title, _, text = part.partition("\n")
            found = []
            for statement in re.split(r";[ ]*\n", text):
                prefix = re.match(r"\s*@(\w+) ", statement)
                sql = statement[prefix.end() :] if prefix else statement
                if sql.strip():
                    found.append((prefix[1] if prefix else "", sql.strip("\n")))
            yield Topic(f"{path.stem}: {title}", found)


def difference(follower: Follower, schemas: Schemas, prefix: str, touched: set[TableName] | None) -> str:
    """How the learned schemas differ from the server's: all of them, or the touched tables; '' if they do not."""
    databases = follower.databases(prefix)
    if databases != dict(schemas.databases):
        return f"    there   {databases}\n    learned {schemas.databases}"
    known = learned_tables(schemas)
    if touched is None:
        there = follower.list_tables(*databases)
    else:
        there = {tuple(name): follower.listed_table(*name) for name in touched if name in follower.names(*databases)}
        known = {name: schema for name, schema in known.items() if name in touched}
    lines = [
        f"    there   {there.get(table)}\n    learned {known.get(table)}"
        for table in sorted(there.keys() | known.keys())
        if not is_same_table(there.get(table), known.get(table))
    ]
    return "\n".join(lines)


@dataclass
class Outcome:
    """The results of a run of the corpus."""

    accepted: int = 0
    definitions: int = 0
    table_maps: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.accepted} statements accepted, {self.definitions} definitions read from the binlog, "
            f"{self.table_maps} table maps fitted"
        )


class Run:
    """One topic on one server: each statement run, read back from the binlog, and learned."""

    def __init__(self, topic: Topic, follower: Follower, database: str, outcome: Outcome) -> None:
        self._title = topic.title
        self._follower = follower
        self._database = database
        self._outcome = outcome
        self._schemas = Schemas(follower.server)

    def wrong(self, what: str) -> None:
        self._outcome.wrong.append(f"{self._title}: {what}")

    def follow(self, sql: str) -> None:
        """Read the new part of the binlog, and compare."""
        touched: set[TableName] = set()
        before = self._schemas
        for logged in self._follower.statements():
            if isinstance(logged, TableMap):
                self._fit(logged, sql)
                continue
            statement = read_statement(logged.sql, logged.session, self._follower.server, failed=logged.failed)
            self._outcome.definitions += statement.kind is Kind.DDL
            # MariaDB logs rows of tables with versions by transaction as statements, also in ROW format.
            if statement.kind is Kind.UNREADABLE or (statement.kind is Kind.ROWS and not sql.startswith("a row")):
                self.wrong(f"{statement.kind}: {logged.sql}")
            self._schemas = self._schemas.apply(statement)
            touched |= set(statement.tables)
        if self._schemas is before and not touched:
            return  # `end` compares everything once more
        if problem := difference(self._follower, self._schemas, self._database, touched):
            self.wrong(f"after {sql!r}\n{problem}")

    def end(self, cursor: pymysql.cursors.Cursor) -> None:
        """Compare everything, and have a row written to each table, so that its table map is seen."""
        if problem := difference(self._follower, self._schemas, self._database, None):
            self.wrong(f"at its end\n{problem}")
        cursor.execute("SET sql_mode = '', foreign_key_checks = 0")
        for database, table in sorted(self._schemas.tables):
            quoted = f"`{database}`.`" + table.replace("`", "``") + "`"
            with suppress(pymysql.MySQLError):
                cursor.execute(f"INSERT IGNORE INTO {quoted} () VALUES ()")
            self.follow(f"a row of {quoted}")

    def _fit(self, logged: TableMap, sql: str) -> None:
        if logged.database not in self._schemas.databases:
            return
        self._outcome.table_maps += 1
        try:
            schema = self._schemas.lookup(logged.database, logged.table)
            if schema is None:
                self.wrong(f"a row of {logged.table}, which is not known, after {sql!r}")
                return
            fitted = fit(schema, logged.columns, is_mariadb=self._follower.server.is_mariadb)
        except SchemaError as error:
            self.wrong(f"after {sql!r}\n    {error}")
            return
        mapped = bind(logged, None, is_mariadb=self._follower.server.is_mariadb).schema
        for own, known in zip(mapped.columns, schema.columns, strict=False):
            # Of a UUID the table map says that it is BINARY(16), and without FULL metadata nothing of charsets.
            if own.nullable != known.nullable or any(
                own.data_type == known.data_type and getattr(own, measure) not in (None, getattr(known, measure))
                for measure in MEASURES
            ):
                self.wrong(f"{own} in the table map, {known} learned after {sql!r}")
        if logged.has_names and [column.name for column in fitted.columns] != [c.name for c in logged.columns]:
            self.wrong(f"{fitted} against {logged} after {sql!r}")


def run(server: SqlServer, flavour: str, name: str) -> Outcome:
    """Run the corpus; accepted statements, and errors."""
    outcome = Outcome()
    follower = Follower(server)
    for topic in topics():
        statements = [(only, sql.replace("{db}", name)) for only, sql in topic.statements if only in ("", flavour)]
        if not statements:
            continue
        with server.connect() as connection, connection.cursor() as cursor:
            for database in follower.databases(name):
                cursor.execute(f"DROP DATABASE `{database}`")
            list(follower.statements())
            cursor.execute(f"CREATE DATABASE {name}")
            cursor.execute(f"USE {name}")
            if flavour == "mariadb":
                cursor.execute("SET SESSION binlog_format = ROW")  # its default is MIXED
            one = Run(topic, follower, name, outcome)
            for only, sql in statements:
                try:
                    cursor.execute(sql)
                    outcome.accepted += 1
                except pymysql.MySQLError as error:
                    if only:
                        one.wrong(f"marked as {only}'s, but refused: {sql}\n    {error}")
                one.follow(sql)
            one.end(cursor)
    follower.close()
    return outcome


def test_every_accepted_ddl_on_mysql_agrees_with_information_schema(
    mysql_server: MysqlServer, unique_name: str
) -> None:
    outcome = run(mysql_server, "mysql", unique_name)
    print(outcome)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.definitions > 300
    assert outcome.table_maps > 100


def test_every_accepted_ddl_on_mariadb_agrees_with_information_schema(
    mariadb_server: MariadbServer, unique_name: str
) -> None:
    outcome = run(mariadb_server, "mariadb", unique_name)
    print(outcome)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    assert outcome.definitions > 300
    assert outcome.table_maps > 100
