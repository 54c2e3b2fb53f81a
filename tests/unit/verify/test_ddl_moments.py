"""The tables that a record of the schema-changes topic changes."""

from __future__ import annotations

import json

import pytest

from changefeed.verify.ddl_moments import read_touched_tables

NUMBERS = {("d", "t"): 0, ("d", "u"): 1, ("e", "t"): 2}


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("ALTER TABLE t ADD c INT", [0]),
        ("RENAME TABLE t TO x, u TO t, x TO u", [0, 1]),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", [0, 1]),
        ("DROP DATABASE d", [0, 1]),
        ("TRUNCATE e.t", [2]),
        ("CREATE TABLE new (id INT)", []),
    ],
)
def test_ddl_statement_belongs_to_the_tables_that_it_changes(sql: str, tables: list[int]) -> None:
    value = json.dumps({"ddl": sql, "databaseName": "d", "session": {}}).encode()
    assert sorted(read_touched_tables(value, NUMBERS)) == tables


@pytest.mark.parametrize("value", [b"\x00\x00\x00\x00\x07binary", b'{"ddl":null,"databaseName":"d","session":{}}'])
def test_unreadable_ddl_statement_belongs_to_all_tables(value: bytes) -> None:
    assert read_touched_tables(value, NUMBERS) == [0, 1, 2]
