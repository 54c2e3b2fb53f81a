"""A hidden column stays hidden in records from before it, or its table, was renamed."""

from __future__ import annotations

import pytest

from changefeed.ddl import Schemas, SchemaTimeline, SessionContext, read_statement
from changefeed.ddl.history import SchemaHistory
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.operations.former_names import FormerNames
from changefeed.settings.file import parse_pipeline

YAML = """
name: shop
source: {connection: mysql_shop}
kafka: {connection: kafka_shop}
tables: {include: ["shop.*"]}
columns: {exclude: ["shop.t.phone_raw"]}
"""
MADE = "CREATE TABLE t (id INT, phone INT)"
RENAMED = "ALTER TABLE t RENAME COLUMN phone TO phone_raw"


def hidden(*statements: str) -> FormerNames:
    timeline = SchemaTimeline(Schemas(databases={"shop": "latin1_swedish_ci"}))
    for number, sql in enumerate(statements, 1):
        at = BinlogCoordinates("binlog.000001", 100 * number)
        timeline = timeline.advance(at, read_statement(sql, SessionContext("shop")))
    since, until = (BinlogCoordinates("binlog.000001", position) for position in (4, 9999))
    return FormerNames(parse_pipeline(YAML, "shop.yaml"), SchemaHistory("server", since, until, timeline))


@pytest.mark.parametrize(
    "later",
    [
        [],
        ["ALTER TABLE t ADD phone INT"],
        ["ALTER TABLE t ADD phone INT", "ALTER TABLE t DROP phone"],
        ["ALTER TABLE t DROP phone_raw"],
        ["RENAME TABLE t TO u"],
        ["ALTER TABLE t RENAME COLUMN phone_raw TO tel, RENAME TO u", "DROP TABLE u"],
        ["DROP TABLE t"],
        ["DROP TABLE t", "CREATE TABLE t (id INT, phone INT)"],
    ],
    ids=" ".join,
)
def test_former_name_stays_hidden_whatever_follows_the_rename(later: list[str]) -> None:
    assert "phone" in hidden(MADE, RENAMED, *later).of("shop.t")


def test_name_in_a_renamed_table_is_hidden() -> None:
    names = hidden(MADE, RENAMED, "RENAME TABLE t TO u", "ALTER TABLE u RENAME COLUMN phone_raw TO tel")
    assert names.of("shop.u") == {"phone_raw", "tel"}


def test_columns_that_were_never_hidden_are_shown() -> None:
    assert hidden(MADE, "ALTER TABLE t RENAME COLUMN id TO number", RENAMED).of("shop.t") == {"phone", "phone_raw"}
    assert hidden(MADE).of("shop.t") == frozenset()
    assert FormerNames(parse_pipeline(YAML, "shop.yaml"), None).of("shop.t") == frozenset()
