"""Topic names: legal whatever the tables are called, and never one name for two tables."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import TopicError
from changefeed.kafka.topics import commit_log_topic, legal_name, topic_name, topic_names

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_names = st.text(min_size=1, max_size=64)


@given(database=_names, table=_names)
def test_any_table_gets_a_legal_name_and_always_the_same(database: str, table: str) -> None:
    name = topic_name("{database}.{table}", database, table)
    assert _LEGAL.match(name)
    assert name == topic_name("{database}.{table}", database, table)


@given(tables=st.lists(st.tuples(_names, _names), max_size=20))
def test_names_are_distinct_to_kafka_or_refused(tables: list[tuple[str, str]]) -> None:
    try:
        names = topic_names("{database}.{table}", tables)
    except TopicError:
        return
    assert set(names) == set(tables)
    assert len({name.replace(".", "_") for name in names.values()}) == len(names)


def test_characters_that_kafka_does_not_allow_become_underscores() -> None:
    assert topic_name("{database}.{table}", "shop", "or ders/ü") == "shop.or_ders__"
    assert topic_name("{pipeline}-{database}_{table}", "shop", "orders", "eu") == "eu-shop_orders"


@pytest.mark.parametrize(
    "tables",
    [[("shop", "a b"), ("shop", "a/b")], [("shop", "a.b"), ("shop.a", "b")], [("shop_a", "b"), ("shop", "a_b")]],
)
def test_two_tables_with_one_topic_are_refused_by_both_names(tables: list[tuple[str, str]]) -> None:
    with pytest.raises(TopicError) as refused:
        topic_names("{database}.{table}", tables)
    for database, table in tables:
        assert f"`{database}`.`{table}`" in str(refused.value)


def test_names_that_differ_only_in_dot_and_underscore_are_refused() -> None:
    with pytest.raises(TopicError, match="metric"):
        topic_names("{database}{table}", [("shop", ".a"), ("shop", "_a")])


def test_one_table_twice_is_no_collision() -> None:
    assert topic_names("{table}", [("shop", "orders"), ("shop", "orders")]) == {("shop", "orders"): "orders"}


def test_a_template_is_replaced_and_never_formatted() -> None:
    assert topic_name("{table:>600000000}", "shop", "orders") == "_table__600000000_"
    assert topic_name("{table.__class__}{0}", "shop", "orders") == "_table.__class____0_"
    assert topic_name("{database}.{table}", "{table}", "{pipeline}") == "_table_._pipeline_"


@pytest.mark.parametrize(
    ("template", "table"),
    [
        ("changefeed.shop.{table}", "commits"),
        ("changefeed.{table}.schema-history", "shop"),
        ("changefeed.{database}.{table}", "dead-letter"),
        ("{table}", "changefeed.shop.schema-changes.replay"),
    ],
)
def test_no_table_is_published_to_a_topic_that_a_pipeline_keeps_its_progress_in(template: str, table: str) -> None:
    with pytest.raises(TopicError, match="keep the progress"):
        topic_name(template, "shop", table)
    assert topic_name("{database}.{table}", "changefeed", "commits") == "changefeed.commits"


def test_names_that_cannot_be_made_legal_are_refused() -> None:
    for name in ("", ".", "..", "x" * 250):
        with pytest.raises(TopicError):
            legal_name(name)
    assert legal_name("x" * 249) == "x" * 249


def test_each_pipeline_has_its_own_commit_log() -> None:
    assert commit_log_topic("shop") == "changefeed.shop.commits"
