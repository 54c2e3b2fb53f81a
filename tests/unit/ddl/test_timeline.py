from __future__ import annotations

import json
import pickle

import pytest

from changefeed.ddl import Schemas, SchemaTimeline, Server, SessionContext, Table, TableName, read_statement
from changefeed.ddl.session import Flavour
from changefeed.errors import CheckpointError, SchemaError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import Column, TableSchema

SHOP = SessionContext("shop")


def place(position: int, number: int = 1) -> BinlogCoordinates:
    return BinlogCoordinates(f"binlog.{number:06}", position)


def timeline(*statements: tuple[BinlogCoordinates, str]) -> SchemaTimeline:
    grown = SchemaTimeline(Schemas(databases={"shop": "latin1_swedish_ci"}))
    for coordinates, sql in statements:
        grown = grown.advance(coordinates, read_statement(sql, SHOP))
    return grown


def names(schema: TableSchema | None) -> list[str] | None:
    return None if schema is None else [column.name for column in schema.columns]


HISTORY = (
    (place(100), "CREATE TABLE t (a INT)"),
    (place(200), "ALTER TABLE t ADD b INT FIRST"),
    (place(300), "RENAME TABLE t TO u"),
    (place(100, 2), "DROP TABLE u"),
)


def test_statement_applies_to_events_after_it() -> None:
    grown = timeline(*HISTORY)
    seen = [names(grown.at(place(position)).lookup("shop", "t")) for position in (100, 101, 200, 201, 300, 301)]
    assert seen == [None, ["a"], ["a"], ["b", "a"], ["b", "a"], None]
    assert names(grown.at(place(4, 2)).lookup("shop", "u")) == ["b", "a"]
    assert grown.latest.lookup("shop", "u") is None


def test_pickled_timeline_omits_derived_schemas() -> None:
    """With thousands of tables the schemas after each of a thousand statements are hundreds of megabytes."""
    grown = timeline(*HISTORY)
    size_bytes = len(pickle.dumps(SchemaTimeline(grown.initial, grown.entries)))
    assert grown.latest.lookup("shop", "u") is grown.at(place(301)).lookup("shop", "t")
    assert len(pickle.dumps(grown)) == size_bytes
    assert pickle.loads(pickle.dumps(grown)).latest == grown.latest


def test_files_are_ordered_by_number() -> None:
    grown = timeline(
        (BinlogCoordinates("b.999999", 4), "CREATE TABLE t (a INT)"),
        (BinlogCoordinates("b.1000000", 4), "ALTER TABLE t ADD b INT"),
    )
    assert names(grown.at(BinlogCoordinates("b.1000000", 4)).lookup("shop", "t")) == ["a"]
    assert names(grown.at(BinlogCoordinates("b.1000000", 5)).lookup("shop", "t")) == ["a", "b"]


def test_timeline_is_read_back_from_json_unchanged() -> None:
    grown = timeline(*HISTORY, (place(200, 2), "CREATE TABLE v AS SELECT 1"), (place(300, 2), "DROP DATABASE shop"))
    again = SchemaTimeline.from_json(json.loads(json.dumps(grown.to_json())))
    assert again == grown
    assert again.latest == grown.latest
    assert [entry.sql for entry in again.entries][:4] == [sql for _, sql in HISTORY]


def test_schemas_of_a_later_form_are_refused() -> None:
    values = timeline(*HISTORY).to_json()
    values["initial"]["version"] = 99
    with pytest.raises(CheckpointError, match="version 99"):
        SchemaTimeline.from_json(values)


def test_a_retried_run_that_reads_the_same_statements_adds_nothing() -> None:
    grown = timeline(*HISTORY)
    for coordinates, sql in HISTORY:
        assert grown.advance(coordinates, read_statement(sql, SHOP)) is grown


def test_a_statement_between_two_that_are_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="comes after"):
        timeline(*HISTORY).advance(place(150), read_statement("CREATE TABLE x (a INT)", SHOP))


def test_folded_entries_still_apply() -> None:
    grown = timeline(*HISTORY)
    folded = grown.fold(place(300))
    assert [entry.sql for entry in folded.entries] == [HISTORY[2][1], HISTORY[3][1]]
    assert folded.latest == grown.latest
    assert names(folded.at(place(300)).lookup("shop", "t")) == ["b", "a"]


def test_rows_of_an_unknown_table_raise_until_it_is_relearned() -> None:
    grown = timeline((place(100), "CREATE TABLE good (a INT)"), (place(200), "CREATE TABLE bad AS SELECT 1 AS one"))
    assert names(grown.latest.lookup("shop", "good")) == ["a"]
    with pytest.raises(SchemaError, match=r"CREATE TABLE bad AS SELECT.*come from a SELECT.*--relearn shop\.bad"):
        grown.latest.lookup("shop", "bad")
    learned = Table(TableSchema("shop", "bad", (Column("one", "int"),)), "latin1_swedish_ci")
    relearned = grown.relearn(place(300), learned)
    assert names(relearned.at(place(300)).lookup("shop", "bad")) == ["one"]
    with pytest.raises(SchemaError):
        relearned.at(place(299)).lookup("shop", "bad")
    altered = relearned.advance(place(300), read_statement("ALTER TABLE bad ADD two INT", SHOP))
    assert names(altered.latest.lookup("shop", "bad")) == ["one", "two"]


def test_drop_database_entry_lists_its_tables() -> None:
    grown = timeline(*HISTORY[:2], (place(300), "DROP DATABASE shop"))
    assert grown.entries[-1].tables == {TableName("shop", "t"): None}
    assert grown.entries[-1].databases == {"shop": None}


def test_truncate_is_an_entry_that_changes_nothing() -> None:
    grown = timeline(HISTORY[0], (place(200), "TRUNCATE TABLE t"))
    assert (grown.entries[-1].kind, grown.entries[-1].touched, grown.entries[-1].tables) == (
        "truncate",
        (TableName("shop", "t"),),
        {},
    )


def test_statement_without_effect_can_be_read_again() -> None:
    """A history with it is not stored; one with later DDL is."""
    stored = timeline(HISTORY[0], (place(300), "ALTER TABLE t ADD c INT"))
    for sql in ("TRUNCATE TABLE t", "RENAME TABLE t TO u, u TO t", "CREATE TABLE IF NOT EXISTS t (z INT)"):
        assert stored.advance(place(200), read_statement(sql, SHOP)) is stored
    with pytest.raises(ValueError, match="comes after one at"):
        stored.advance(place(200), read_statement("ALTER TABLE t ADD b INT", SHOP))


@pytest.mark.parametrize(("setting", "known"), [(0, False), (1, True), (2, True)])
def test_lower_case_table_names_decides_whether_names_are_the_same(setting: int, known: bool) -> None:
    server = Server(lower_case_table_names=setting)
    schemas = Schemas(server).apply(read_statement("CREATE TABLE `Shop`.`Orders` (a INT)", server=server))
    assert (schemas.lookup("shop", "orders") is not None) is known
    assert (schemas.apply(read_statement("DROP TABLE SHOP.ORDERS", server=server)).tables == {}) is known


@pytest.mark.parametrize("before", ["", "SET STATEMENT max_statement_time = 1 FOR "])
def test_a_create_or_replace_that_failed_leaves_no_table(before: str) -> None:
    server = Server(Flavour.MARIADB)
    sql = f"{before}CREATE OR REPLACE TABLE t (a INT)"
    schemas = Schemas(server, {"shop": "latin1_swedish_ci"}).apply(read_statement(sql, SHOP, server))
    assert len(schemas.tables) == 1
    assert not schemas.apply(read_statement(sql, SHOP, server, failed=True)).tables


def test_create_table_over_a_view_creates_no_table() -> None:
    view, table = (
        "CREATE DEFINER=`a`@`%` SQL SECURITY DEFINER VIEW `v` AS select 1",
        "CREATE TABLE IF NOT EXISTS v (a INT)",
    )
    grown = timeline((place(100), view), (place(200), table), (place(300), "DROP VIEW v"), (place(400), table))
    assert [grown.at(place(position)).lookup("shop", "v") is not None for position in (301, 401)] == [False, True]
    assert SchemaTimeline.from_json(json.loads(json.dumps(grown.to_json()))) == grown
    assert grown.fold(place(250)).initial.views == {TableName("shop", "v")}


def test_reading_a_create_view_again_is_no_error_if_its_view_was_not_stored() -> None:
    kept = timeline((place(200), "CREATE TABLE t (a INT)"))
    assert kept.advance(place(100), read_statement("CREATE VIEW v AS SELECT 1", SHOP)) is kept


def test_tables_between_which_a_statement_moves_rows_are_all_named() -> None:
    """These rows have no row events, so readers of the table's rows need the statement."""
    server, session = Server(Flavour.MARIADB, (11, 4, 5)), SessionContext("shop")
    for statement in (
        "ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE old.orders WITHOUT VALIDATION",
        "ALTER TABLE orders CONVERT PARTITION p0 TO TABLE old.orders",
        "ALTER TABLE orders CONVERT TABLE old.orders TO PARTITION p0 VALUES LESS THAN (9)",
    ):
        read = read_statement(statement, session, server)
        assert read.tables == (TableName("shop", "orders"), TableName("old", "orders")), statement
