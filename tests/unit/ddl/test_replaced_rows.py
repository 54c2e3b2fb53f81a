"""Which DDL may replace rows of a table without row events."""

from __future__ import annotations

import pytest

from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.session import SessionContext


def replaces_rows(sql: str) -> bool:
    return read_statement(sql, SessionContext("shop")).replaces_rows


@pytest.mark.parametrize(
    "sql",
    [
        "RENAME TABLE t TO old, u TO t",
        "ALTER TABLE u RENAME TO t",
        "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t",
        "ALTER TABLE p CONVERT TABLE t TO PARTITION a VALUES LESS THAN (9)",
        "ALTER TABLE t CONVERT PARTITION a TO TABLE u",
        "ALTER TABLE t DISCARD TABLESPACE",
        "ALTER TABLE t IMPORT TABLESPACE",
        "ALTER TABLE t IMPORT PARTITION a TABLESPACE",
        "ALTER TABLE t UNION = (u, v)",
        "ALTER TABLE t COMMENT 'x', CONNECTION = 'mysql://other/t'",
        "TRUNCATE t",
        "DROP TABLE IF EXISTS t",
        "DROP DATABASE shop",
        "CREATE OR REPLACE TABLE t (a INT)",
        "ALTER TABLE t ADD INDEX (a), ADD COLUMN b INT DEFAULT 7",
        "ALTER TABLE t MODIFY a BIGINT",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t and what nobody can read (",
    ],
)
def test_ddl_with_rows_replaces_rows(sql: str) -> None:
    assert replaces_rows(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a INT)",
        "CREATE TABLE IF NOT EXISTS t (a INT)",
        "CREATE INDEX i ON t (a)",
        "ALTER TABLE t ADD INDEX (a), DROP INDEX b, RENAME INDEX c TO d",
        "ALTER TABLE t ADD PARTITION (PARTITION b VALUES LESS THAN (20))",
        "ALTER TABLE t DROP PARTITION a",
        "ALTER TABLE t REORGANIZE PARTITION a INTO (PARTITION a VALUES LESS THAN (5))",
        "ALTER TABLE t COMMENT = 'union', ENGINE = InnoDB",
        "ALTER TABLE t ALTER COLUMN a SET DEFAULT 5",
        "INSERT INTO t VALUES (1)",
        "CREATE TEMPORARY TABLE t (a INT)",
        "ANALYZE TABLE t",
    ],
)
def test_other_statements_keep_rows(sql: str) -> None:
    assert not replaces_rows(sql)
