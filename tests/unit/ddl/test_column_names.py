"""A column is found under its earlier and later names, or not at all."""

from __future__ import annotations

import pytest

from changefeed.ddl import Schemas, SchemaTimeline, SessionContext, TableName, read_statement
from changefeed.ddl.column_names import other_names
from changefeed.model.coordinates import BinlogCoordinates

MADE = "CREATE TABLE t (id INT, a INT)"


@pytest.mark.parametrize(
    ("statements", "before", "after"),
    [
        # names of `id` and `a` before the statements, and of the columns after them
        (["ALTER TABLE t RENAME COLUMN a TO b"], {"b": 1}, {"a": 1}),
        (["ALTER TABLE t CHANGE a B BIGINT FIRST, ADD c INT"], {"b": 1}, {"a": 0}),
        (
            ["ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME COLUMN b TO c"],
            {"b": 1, "c": 1},
            {"a": 1, "b": 1},
        ),
        (["ALTER TABLE t RENAME COLUMN a TO id, RENAME COLUMN id TO a"], {}, {}),
        (["ALTER TABLE t DROP a, ADD b INT"], {}, {}),
        (["ALTER TABLE t DROP a", "ALTER TABLE t ADD a INT", "ALTER TABLE t CHANGE a b INT"], {}, {}),
        (["ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t ADD a INT", "ALTER TABLE t DROP a"], {"b": 1}, {}),
        (
            [
                "CREATE TABLE _t_gho LIKE t",
                "ALTER TABLE _t_gho CHANGE a b INT",
                "RENAME TABLE t TO _t_del, _t_gho TO t",
                "DROP TABLE _t_del",
            ],
            {"b": 1},
            {"a": 1},
        ),
        (["ALTER TABLE t RENAME COLUMN a TO b, RENAME TO u", "RENAME TABLE u TO x, x TO t"], {"b": 1}, {"a": 1}),
        (["DROP TABLE t", "CREATE TABLE t (id INT, b INT)"], {}, {}),
    ],
)
def test_names_are_followed_through_renames(
    statements: list[str], before: dict[str, int], after: dict[str, int]
) -> None:
    timeline = SchemaTimeline(Schemas(databases={"shop": "latin1_swedish_ci"}))
    for number, sql in enumerate([MADE, *statements], 1):
        at = BinlogCoordinates("binlog.000001", 100 * number)
        timeline = timeline.advance(at, read_statement(sql, SessionContext("shop")))
    table = TableName("shop", "t")

    def others(position: int) -> dict[str, int]:
        """The names without those that the columns have there."""
        at = BinlogCoordinates("binlog.000001", position)
        schema = timeline.at(at).lookup(*table)
        assert schema is not None
        own = {column.name.lower() for column in schema.columns}
        return {name: place for name, place in other_names(timeline, at, table) if name not in own}

    assert (others(150), others(9999)) == (before, after)
