"""Which tables a record of the schema-changes topic is about."""

from __future__ import annotations

import json

import pytest

from changefeed.verify.definition_moments import touched_tables

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
def test_a_definition_is_of_the_tables_that_it_touches(sql: str, tables: list[int]) -> None:
    value = json.dumps({"ddl": sql, "databaseName": "d", "session": {}}).encode()
    assert sorted(touched_tables(value, NUMBERS)) == tables


@pytest.mark.parametrize("value", [b"\x00\x00\x00\x00\x07binary", b'{"ddl":null,"databaseName":"d","session":{}}'])
def test_a_definition_that_cannot_be_read_is_of_all(value: bytes) -> None:
    assert touched_tables(value, NUMBERS) == [0, 1, 2]
