"""Conditions in SQL are parsed, or refused with the expected form."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from changefeed.model.row_predicate import Both, ColumnOf, Comparison, Either, IsNull, Like, Not, RowPredicate
from changefeed.settings.sql_condition import parse_predicate

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
def test_condition_is_parsed_as_in_sql(sql: str, predicate: RowPredicate) -> None:
    assert parse_predicate(sql) == predicate


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("n =", "is no condition"),
        ("n = 1; n = 2", "expected one condition, found 2"),
        ("n = NULL", "expected IS NULL"),
        ("n = m", "'m' is no constant"),
        ("LOWER(n) = 'a'", "'LOWER(n)' is no column"),
        ("n RLIKE 'a'", "cannot be evaluated: expected columns"),
        ("n LIKE m", "'m' is no pattern: expected a text in quotes"),
        ("n LIKE 'a|' ESCAPE '|'", "ends with the escape character '|': expected a character after it"),
        ("n LIKE 'a' ESCAPE 'xy'", "is no escape character: expected one character"),
        ("LOWER(n) LIKE 'a'", "'LOWER(n)' is no column"),
        ("old.n = 1", "'old.n' is not a column of an image: expected `before.n`"),
        ("shop.before.n = 1", "is not a column of an image"),
        ("n IN (SELECT 1)", "cannot be evaluated"),
        ("1 = 1", "is no column"),
        ("SELECT 1", "cannot be evaluated"),
        ("n = 1" + " AND n = 1" * 200, "nested deeper than 100"),
    ],
)
def test_unsupported_condition_is_refused_with_the_expected_form(sql: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_predicate(sql)
