"""Conditions in SQL are read, or refused with what is wanted."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from changefeed.model.row_predicate import Both, ColumnOf, Comparison, Either, IsNull, Like, Not, RowPredicate
from changefeed.settings.sql_condition import predicate_of

N = ColumnOf("row", "n")


@pytest.mark.parametrize(
    ("sql", "predicate"),
    [
        ("n = 1", Comparison(N, "=", 1)),
        ("1 < n", Comparison(N, ">", 1)),
        ("`N` != -1.50", Comparison(ColumnOf("row", "N"), "<>", Decimal("-1.50"))),
        ("before.n >= 'it''s'", Comparison(ColumnOf("before", "n"), ">=", "it's")),
        ("AFTER.n = X'00ff'", Comparison(ColumnOf("after", "n"), "=", b"\x00\xff")),
        ("n IS NULL", IsNull(N)),
        ("n IS NOT NULL", Not(IsNull(N))),
        ("n", Comparison(N, "<>", 0)),
        ("NOT (n = TRUE) AND n < 1e3", Both(Not(Comparison(N, "=", 1)), Comparison(N, "<", 1000))),
        ("n LIKE 'a\\_%'", Like(N, "a\\_%")),
        ("before.n NOT LIKE 'a|%' ESCAPE '|'", Not(Like(ColumnOf("before", "n"), "a|%", "|"))),
        ("n BETWEEN 1 AND 2", Both(Comparison(N, ">=", 1), Comparison(N, "<=", 2))),
        (
            "n IN (1, 2, 3)",
            Either(Either(Comparison(N, "=", 1), Comparison(N, "=", 2)), Comparison(N, "=", 3)),
        ),
        (
            "n = 1 OR n = 2 AND n = 3",
            Either(Comparison(N, "=", 1), Both(Comparison(N, "=", 2), Comparison(N, "=", 3))),
        ),
    ],
)
def test_a_condition_is_read_as_sql_has_it(sql: str, predicate: RowPredicate) -> None:
    assert predicate_of(sql) == predicate


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("n =", "is no condition"),
        ("n = 1; n = 2", "is 2 conditions"),
        ("n = NULL", "wanted IS NULL"),
        ("n = m", "'m' is no constant"),
        ("LOWER(n) = 'a'", "'LOWER(n)' is no column"),
        ("n RLIKE 'a'", "cannot be worked out of a row: wanted columns"),
        ("n LIKE m", "'m' is no pattern: wanted one in quotes"),
        ("n LIKE 'a|' ESCAPE '|'", "ends with '|', behind which a character is wanted"),
        ("n LIKE 'a' ESCAPE 'xy'", "is no escape: wanted one character"),
        ("LOWER(n) LIKE 'a'", "'LOWER(n)' is no column"),
        ("old.n = 1", "'old.n' is of no image: wanted `before.n`"),
        ("shop.before.n = 1", "is of no image"),
        ("n IN (SELECT 1)", "cannot be worked out"),
        ("1 = 1", "is no column"),
        ("SELECT 1", "cannot be worked out"),
        ("n = 1" + " AND n = 1" * 200, "nested deeper than 100"),
    ],
)
def test_what_cannot_be_worked_out_of_a_row_is_refused_with_what_is_wanted(sql: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        predicate_of(sql)
