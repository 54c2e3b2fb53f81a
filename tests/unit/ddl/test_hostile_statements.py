"""Long statements that users can put into the binlog: each is read within seconds."""

from __future__ import annotations

import contextlib
import time

import pytest

from changefeed.binlog.events.framing import DamagedEvent
from changefeed.binlog.events.query_event import savepoint_of, transaction_step, xid_of
from changefeed.ddl import DdlStatement, Flavour, Schemas, Server, SessionContext, UnknownTable, read_statement

_SECONDS = 15
"""A generous limit: a non-linear parser takes hours."""
_OF_A_STATEMENT, _OF_ITS_FIRST_WORDS = 64 << 10, 1 << 20
_STATEMENTS = {
    "comments, then no word": ("", "/*x*/", "("),
    "comments that are empty": ("", "/**/", "("),
    "comments of lines": ("", "#\n", "("),
    "dashes": ("", "--\n", ""),
    "comments without an end": ("", "/*", ""),
    "versioned comments without an end": ("", "/*!", ""),
    "comments in one that is not read": ("/*!99999 ", "/*", "*/" * 1000),
    "ends of comments": ("/*!99999 /*", "*/", ""),
    "spaces": ("", " ", "("),
    "a savepoint": ("SAVEPOINT `", "``", ""),
    "a rollback": ("ROLLBACK", " ", "("),
    "words of a table that is filled": ("CREATE x.y (", "CREATE TABLE ", ""),
    "an insert of strings": ("INSERT INTO t VALUES (", "'\\''", ""),
    "an update of parentheses": ("UPDATE t SET a = ", "(", ""),
    "an update of tables": ("UPDATE ", "a JOIN ", "b SET c = 1"),
    "a delete": ("DELETE FROM t WHERE ", "a(", ""),
    "queries with names": ("WITH ", "a AS (SELECT 1), ", ""),
    "a view of parentheses": ("CREATE VIEW v AS SELECT ", "(", ""),
    "a default of parentheses": ("CREATE TABLE t (a INT DEFAULT (", "(", ""),
    "a default that ends": ("CREATE TABLE t (a INT DEFAULT (", "1+", "1))"),
    "a default of comments": ("CREATE TABLE t (a INT DEFAULT (", "/**/", "1))"),
    "a default of intervals": ("CREATE TABLE t (a INT DEFAULT ", "INTERVAL ", "1)"),
    "a default of quotes": ("CREATE TABLE t (a TEXT DEFAULT ", "'' ", ")"),
    "a default with a time": ("CREATE TABLE t (a DATETIME DEFAULT (NOW", " ", "x))"),
    "a length of many digits": ("CREATE TABLE t (a VARCHAR(", "9", "))"),
    "a label of quotes": ("CREATE TABLE t (a ENUM(", "'''',", "'b'))"),
    "columns": ("CREATE TABLE t (", "a INT, ", "b INT)"),
    "a check": ("CREATE TABLE t (a INT, CHECK (", "NOT (", "1"),
    "a partition": ("CREATE TABLE t (a INT) PARTITION BY RANGE (", "(", ""),
    "an alteration": ("ALTER TABLE t ", "ADD COLUMN (", ""),
    "tables that are dropped": ("DROP TABLE ", "a, ", "b"),
    "a variable's statement": ("SET STATEMENT ", "a=", "1 FOR INSERT INTO t VALUES (1)"),
    "nested statements": ("", "SET STATEMENT a=1 FOR ", "INSERT INTO t VALUES (1)"),
}


@pytest.mark.parametrize("shape", _STATEMENTS)
def test_long_statement_is_read_in_seconds(shape: str) -> None:
    before, repeated, after = _STATEMENTS[shape]
    server, begin = Server(Flavour.MARIADB if "SET" in before + repeated else Flavour.MYSQL), time.process_time()
    statement = read_statement(
        before + repeated * (_OF_A_STATEMENT // len(repeated)) + after, SessionContext("shop"), server
    )
    assert isinstance(statement, DdlStatement)
    long = before + repeated * (_OF_ITS_FIRST_WORDS // len(repeated)) + after
    transaction_step(long)
    for read in (savepoint_of, xid_of):
        with contextlib.suppress(DamagedEvent):
            read(long)
    assert time.process_time() - begin < _SECONDS


@pytest.mark.parametrize("depth", [30, 100, 1000])
@pytest.mark.parametrize("repeated", ["({}1)", "ABS({}1)", "NOT {}1", "1+{}1", "CASE WHEN {}1 THEN 1 END"])
def test_default_of_any_depth_is_applied(repeated: str, depth: int) -> None:
    before, after = repeated.split("{}")
    default = before * depth + "0" + after * depth
    statement = read_statement(f"CREATE TABLE t (a INT PRIMARY KEY, b INT DEFAULT ({default}))", SessionContext("shop"))
    schemas = Schemas(databases={"shop": "utf8mb4_0900_ai_ci"}).apply(statement)
    (table,) = schemas.tables.values()
    assert [column.name for column in table.schema.columns] == ["a", "b"], statement.problem


@pytest.mark.parametrize(("table", "before"), [("u", "CREATE TABLE u (a INT, "), ("t", "ALTER TABLE t ADD (")])
def test_more_keys_than_any_server_takes_are_not_named_one_by_one(table: str, before: str) -> None:
    session, begin = SessionContext("shop"), time.process_time()
    schemas = Schemas(databases={"shop": "utf8mb4_0900_ai_ci"})
    for sql in ("CREATE TABLE t (a INT)", f"{before}{', '.join(['KEY (a)'] * 20_000)})"):
        schemas = schemas.apply(read_statement(sql, session))
    assert isinstance(unknown := schemas.entry("shop", table), UnknownTable)
    assert "no server allows more than" in unknown.problem
    assert time.process_time() - begin < _SECONDS
