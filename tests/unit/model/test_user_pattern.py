from __future__ import annotations

import pickle
import time

import pytest

from changefeed.errors import SettingsError
from changefeed.formats.debezium_options import KEYS
from changefeed.model.column_rules import ColumnRule, Excluded
from changefeed.model.table_pattern import check_pattern, check_patterns, matches, matches_any, names_database
from changefeed.model.user_pattern import LONGEST, MOST, MOST_REGEXES, UserPattern
from changefeed.settings.file import parse_pipeline
from changefeed.settings.outbox_settings import OutboxSettings

_SECONDS = 5
"""A generous cap: what is not linear takes years."""
_EXPONENTIAL = ["(a+)+", "(a|a)*", "(a|aa)+", "(.*)*", ".*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*x", "(a*)*b"]


@pytest.mark.parametrize("regex", _EXPONENTIAL)
def test_expression_that_tries_all_ways_is_matched_in_no_time(regex: str) -> None:
    begin, database = time.process_time(), "a" * 64
    for table in ("a" * 64, "a" * 63 + "!"):
        matches(f"/{regex}/", database, table)
        matches_any((f"/{regex}/", "*.b"), database, table)
        names_database(f"/{regex}\\.x/", database)
        ColumnRule(f"/{regex}/", Excluded(), "columns.exclude").covers(database, table, "a" * 64)
        for key in KEYS.read(f"{regex}:id"):
            key.tables.fullmatch(f"{database}.{table}")
    assert time.process_time() - begin < _SECONDS


@pytest.mark.parametrize("regex", _EXPONENTIAL)
def test_topic_of_a_row_of_a_megabyte_is_found_in_no_time(regex: str) -> None:
    begin = time.process_time()
    settings = OutboxSettings(tables=["shop.outbox"], **{"route.topic.regex": regex, "route.topic.replacement": "t"})
    for value in ("a" * (1 << 20), "a" * (1 << 20) + "!"):
        assert settings.columns.topic(value) in ("t", value)
    assert time.process_time() - begin < _SECONDS


def test_shell_patterns_with_many_stars_are_matched_in_no_time() -> None:
    begin = time.process_time()
    assert not matches("*a" * 400 + "b", "a" * 64, "a" * 64)
    assert time.process_time() - begin < _SECONDS


@pytest.mark.parametrize(
    "regex", ["(?=a)a", "(?!a)b", "(?<=a)b", r"(a)\1", "(", "a{1001}", "(a{1000}){1000}", "x" * 1001]
)
def test_expression_that_cannot_be_matched_in_linear_time_is_refused_with_a_sentence(regex: str) -> None:
    with pytest.raises(ValueError, match=r"is no regular expression|expected at most") as refused:
        check_pattern(f"/{regex}/")
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="regular expression"):
        KEYS.read(f"{regex}:id")


def test_patterns_are_bounded_in_number_and_length() -> None:
    check_patterns(["shop.orders"] * MOST)
    with pytest.raises(ValueError, match="has 10001 patterns: expected at most 10000"):
        check_patterns(["shop.orders"] * (MOST + 1))
    with pytest.raises(ValueError, match="has 101 regular expressions: expected at most 100"):
        check_patterns([rf"/shop\.{number}/" for number in range(MOST_REGEXES + 1)])
    with pytest.raises(ValueError, match="expected at most 1000"):
        check_pattern("*" * (LONGEST + 1))


def test_conditions_are_bounded_in_number_before_one_is_read() -> None:
    begin = time.process_time()
    rows = "".join(f"  a.b{number}: a = {number}\n" for number in range(9000))
    text = f"name: shop\nsource: {{connection: m}}\nkafka: {{connection: k}}\ntables: {{include: [a.*]}}\nrows:\n{rows}"
    with pytest.raises(SettingsError, match=r"line 5: 'rows'.*expected at most 1000 conditions, found 9000"):
        parse_pipeline(text, "shop.yaml")
    assert time.process_time() - begin < _SECONDS


def test_expression_has_groups_and_names_in_either_spelling_and_is_pickled() -> None:
    pattern = pickle.loads(pickle.dumps(UserPattern(r"(?P<a>\d+)-(?<b>x)?(é)", ignore_case=True)))
    assert (pattern.groups, pattern.names) == (3, ("a", "b"))
    found = pattern.fullmatch("12-É")
    assert (found["a"], found["b"], found[3]) == ("12", None, "É")
    assert UserPattern("a.b").fullmatch("a\udc80b") is not None, "no UTF-8"
