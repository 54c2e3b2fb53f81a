"""DDL applied backwards derives the right table or an unknown one, compared with DDL applied forwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changefeed.ddl import Flavour, Schemas, Server, SessionContext, Table, TableName, UnknownTable, read_statement
from changefeed.ddl.backwards import ReadStatement, derived_timeline
from changefeed.ddl.charsets import charset_of
from changefeed.ddl.seen_rows import RowsByTable, SeenRows
from changefeed.ddl.sql_file import defined_schemas
from changefeed.errors import SchemaError
from changefeed.model.charset_codes import max_bytes
from changefeed.model.column_types import DATA_TYPES, ENUM, NEWDECIMAL, STRING, MapColumn, Metadata
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import Column

MYSQL = Server()
MARIADB = Server(Flavour.MARIADB, (11, 4, 5), 0, "utf8mb4_uca1400_ai_ci")
COLLATIONS = {63: "binary", 255: "utf8mb4_0900_ai_ci", 8: "latin1_swedish_ci"}


def mapped(column: Column, *, with_metadata: bool) -> MapColumn:
    """A column as a TABLE_MAP shows it; ``with_metadata`` as MySQL does with MINIMAL metadata."""
    wire, width = DATA_TYPES[column.data_type].wire[0], max_bytes(charset_of(column.collation or ""))
    meta = DATA_TYPES[column.data_type].meta or 0
    if wire.metadata is Metadata.LENGTH or (wire is STRING and not meta):
        meta = (column.length or 1) * width
    elif wire is NEWDECIMAL:
        meta = (column.precision or 0) << 8 | (column.scale or 0)
    elif wire is ENUM:
        meta = 1
    elif wire.metadata is Metadata.BYTE and not meta:
        meta = column.datetime_precision or 0
    ids = {name: number for number, name in COLLATIONS.items()}
    collation = ids[column.collation or "binary"] if with_metadata and wire.has_charset else None
    unsigned = column.unsigned if with_metadata and wire.has_sign else None
    return MapColumn(wire.number, meta, column.nullable is not False, unsigned, collation)


class Play:
    """Statements and rows ("+t") on a server, of which those after START are derived from the final schemas."""

    def __init__(self, server: Server, *steps: str) -> None:
        self.schemas, self.log, self.rows = Schemas(server, {"d": server.collation}), list[ReadStatement](), []
        self.position = 100
        for step in steps:
            self.position += 10
            at = BinlogCoordinates("binlog.000001", self.position)
            if step == "START":
                self.log, self.rows = [], []
            elif step.startswith("+"):
                table = self.schemas.entry("d", step[1:])
                assert isinstance(table, Table)
                columns = tuple(mapped(c, with_metadata=not server.is_mariadb) for c in table.schema.columns)
                self.rows.append((SeenRows(TableName("d", step[1:]), at, columns, 1), table))
            else:
                read = read_statement(step.removeprefix("no-op "), SessionContext("d"), server)
                self.log.append(ReadStatement(at, read))
                self.schemas = self.schemas if step.startswith("no-op ") else self.schemas.apply(read)

    def derived(self) -> list[str]:
        """For each of the rows: known (and right), unknown, or the error."""
        rows = RowsByTable(seen for seen, _ in self.rows)
        timeline = derived_timeline(self.schemas, self.log, rows, COLLATIONS, {})
        found = []
        for seen, table in self.rows:
            entry = timeline.at(seen.first).entry(*seen.name)
            if isinstance(entry, Table):
                found.append("known" if plain(entry) == plain(table) else f"wrong: {plain(entry)}")
            else:
                assert isinstance(entry, UnknownTable)
                found.append("unknown")
        assert timeline.latest.databases == self.schemas.databases
        return found


def plain(table: Table) -> object:
    schema = table.schema
    columns = [(c.name, c.data_type, c.unsigned, c.labels, None if c.labels else c.collation) for c in schema.columns]
    return columns, [schema.columns[number].name for number in schema.primary_key]


T = "CREATE TABLE t (id INT PRIMARY KEY, x DATE, e ENUM('a','b'), v VARCHAR(10))"
RIGHT = {
    "index": (T, "START", "+t", "CREATE INDEX i ON t (x)", "+t"),
    "column added first": (T, "START", "+t", "ALTER TABLE t ADD y INT FIRST", "+t"),
    "old name beside a new column of it": (T, "START", "+t", "ALTER TABLE t CHANGE id old_id INT, ADD COLUMN id INT"),
    "names that change places": (T, "START", "+t", "ALTER TABLE t RENAME COLUMN x TO v, RENAME COLUMN v TO x", "+t"),
    "migration with a changed type": (
        T, "START", "+t", "CREATE TABLE n LIKE t", "ALTER TABLE n MODIFY x DATETIME(3)", "RENAME TABLE t TO o, n TO t",
        "DROP TABLE o", "+t",
    ),
    "dropped column": (T, "START", "+t", "ALTER TABLE t DROP COLUMN v"),
    "two statements without rows between": (
        T, "START", "+t", "ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD w INT FIRST, MODIFY x DATETIME", "+t",
    ),
    "made and dropped": ("START", T, "+t", "ALTER TABLE t MODIFY e ENUM('b')", "+t", "DROP TABLE t"),
}  # fmt: skip
UNKNOWN = {
    "labels": (T, "START", "+t", "ALTER TABLE t MODIFY e ENUM('b','a')"),
    "place among twins": (
        "CREATE TABLE t (id INT PRIMARY KEY, a DATE, b DATE)", "START", "+t", "ALTER TABLE t DROP COLUMN a",
    ),
    "key": (T, "START", "+t", "ALTER TABLE t DROP PRIMARY KEY"),
    "dropped": (T, "START", "+t", "DROP TABLE t"),
    "made if not there": (T, "START", "no-op CREATE TABLE IF NOT EXISTS t (id INT)", "+t", "DROP TABLE t"),
}  # fmt: skip
NO_OPS = {
    "rename": ("CREATE TABLE t (id INT, b DATE)", "START", "+t", "no-op ALTER TABLE t RENAME COLUMN IF EXISTS a TO b"),
    "change": ("CREATE TABLE t (id INT, b DATE)", "START", "+t", "no-op ALTER TABLE t CHANGE IF EXISTS a b DATE"),
    "key": (
        "CREATE TABLE t (id INT PRIMARY KEY)", "START", "+t", "no-op ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (id)",
    ),
    "number": (
        "CREATE TABLE t (id INT PRIMARY KEY, x BIGINT)", "START", "+t", "ALTER TABLE t COMMENT 'a'",
        "no-op ALTER TABLE t ADD COLUMN IF NOT EXISTS x BIGINT",
    ),
    "inherited charset": (
        "START", "CREATE TABLE t (id INT, a TEXT)", "+t", "ALTER DATABASE d CHARACTER SET latin1", "DROP TABLE t",
    ),
}  # fmt: skip
"""Statements of MariaDB without effect, or whose effect on inherited properties is invisible."""


@pytest.mark.parametrize("steps", RIGHT.values(), ids=RIGHT)
def test_derived_tables_equal_the_earlier_ones(steps: tuple[str, ...]) -> None:
    assert set(Play(MYSQL, *steps).derived()) == {"known"}


@pytest.mark.parametrize("steps", UNKNOWN.values(), ids=UNKNOWN)
def test_unproved_tables_are_unknown(steps: tuple[str, ...]) -> None:
    assert Play(MYSQL, *steps).derived() == ["unknown"]


@pytest.mark.parametrize("steps", NO_OPS.values(), ids=NO_OPS)
def test_clause_that_may_have_no_effect_leaves_the_table_unknown(steps: tuple[str, ...]) -> None:
    assert Play(MARIADB, *steps).derived()[0] == "unknown"


def test_dump_is_read_with_databases_and_without_routines() -> None:
    dump = """-- a dump
/*!40101 SET NAMES utf8 */;
USE `a`; -- of a
CREATE TABLE t (id INT, x DATE);
DELIMITER ;;
CREATE PROCEDURE p() BEGIN ALTER TABLE t DROP COLUMN x; END ;;
DELIMITER ;
/* now */ USE b /* this one */;
CREATE TABLE t (id INT);
"""
    tables = defined_schemas(dump, Schemas(MYSQL, {"a": "latin1_swedish_ci", "b": "latin1_swedish_ci"})).tables
    sizes = {name: len(table.schema.columns) for name, table in tables.items() if isinstance(table, Table)}
    assert sizes == {TableName("a", "t"): 2, TableName("b", "t"): 1}


@pytest.mark.parametrize("text", ["USE ;", "CREATE TABLE t (a DECIMAL(5,2) DEFAULT 1e999999999);", "CREATE TABLE 'x"])
def test_text_that_is_no_dump_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(SchemaError, match="the statements cannot be read"):
        defined_schemas(text, replace(Schemas(MYSQL), databases={"d": "latin1_swedish_ci"}))


INHERITED = ("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10))", "+t", "ALTER TABLE t MODIFY a VARCHAR(11)", "+t")


@pytest.mark.parametrize(
    ("steps", "result"),
    [
        (("START", "CREATE DATABASE IF NOT EXISTS d", *INHERITED), "known"),
        (("START", "DROP DATABASE d", "CREATE DATABASE IF NOT EXISTS d CHARACTER SET latin1", *INHERITED), "known"),
        (
            ("START", "CREATE DATABASE IF NOT EXISTS d", *INHERITED, "ALTER DATABASE d CHARACTER SET latin1"),
            "unknown",
        ),
    ],
    ids=["no effect", "created again", "altered later"],
)
def test_database_that_is_created_if_not_there_has_the_charset_of_now(steps: tuple[str, ...], result: str) -> None:
    """MariaDB does not write charsets to the binlog by default, so the tables inherit them from their database."""
    assert Play(MARIADB, *steps).derived()[0] == result


def test_database_that_was_removed_without_the_binlog_has_no_known_charset() -> None:
    steps = ("CREATE DATABASE IF NOT EXISTS d", "CREATE TABLE t (id INT PRIMARY KEY, a TEXT)", "+t")
    play = Play(MARIADB, "ALTER DATABASE d CHARACTER SET latin1", "START", *steps)
    (seen, _) = play.rows[0]
    now = Schemas(MARIADB, {"other": MARIADB.collation})
    timeline = derived_timeline(now, play.log, RowsByTable([seen]), COLLATIONS, {})
    assert isinstance(timeline.at(seen.first).entry("d", "t"), UnknownTable)
