"""Topic names: legal whatever the tables are called, and never one name for two tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from changefeed.errors import TopicError
from changefeed.model.route import TableField
from changefeed.model.topic_name import (
    check_published_to,
    commit_log_topic,
    legal_name,
    schema_changes_topic,
    topic_name,
)
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.settings.routes import compile_routes


def topic_names(template: str, tables: list[tuple[str, str]], **topics: Any) -> dict[tuple[str, str], str]:
    plain = {"name": "p", "source": {"connection": "s"}, "kafka": {"connection": "k"}}
    pipeline = Pipeline.model_validate({**plain, "topics": {"template": template, **topics}})
    return {name: route.topic for name, route in compile_routes(pipeline).route_tables(tables).items()}


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
        ("{table}", "changefeed_shop_commits"),
        ("changefeed.{table}_Commits", "shop"),
        ("{table}", "__consumer_offsets"),
    ],
)
def test_no_table_is_published_to_a_topic_that_a_pipeline_keeps_its_progress_in(template: str, table: str) -> None:
    with pytest.raises(TopicError, match="keep the progress"):
        topic_name(template, "shop", table)
    assert topic_name("{database}.{table}", "changefeed", "commits") == "changefeed.commits"
    assert topic_name("{table}", "shop", "__orders_new") == "__orders_new"


def test_a_suffix_makes_no_name_of_another_kind_of_state() -> None:
    for suffix in (".commits", "_x.schema-history", ".Dead-Letter.again"):
        with pytest.raises(TopicError, match="Choose another suffix"):
            schema_changes_topic("shop", suffix)
    assert schema_changes_topic("shop", ".recommits") == "changefeed.shop.schema-changes.recommits"


def test_a_pipeline_publishes_to_none_of_the_topics_that_others_keep_state_in() -> None:
    for topic in ("shop.orders", "changefeed.shop.schema-changes", "changefeed.shop.dead-letter"):
        check_published_to(topic, "shop")
    check_published_to("changefeed.shop.schema-changes.replay", "shop")
    for topic in ("changefeed.shop.commits", "changefeed.shop.schema-history", "changefeed.shop2.schema-changes"):
        with pytest.raises(TopicError, match="keep their own state"):
            check_published_to(topic, "shop")


def test_names_that_cannot_be_made_legal_are_refused() -> None:
    for name in ("", ".", "..", "x" * 250):
        with pytest.raises(TopicError):
            legal_name(name)
    assert legal_name("x" * 249) == "x" * 249


def test_each_pipeline_has_its_own_commit_log() -> None:
    assert commit_log_topic("shop") == "changefeed.shop.commits"


SHARDS = [("shop", "orders_1"), ("shop", "orders_2"), ("shop", "items")]


def test_tables_share_a_topic_where_a_rule_says_so_and_only_there() -> None:
    route = {"match": r"/shop\.(?P<name>orders|bills)_(\d+)/", "topic": "{database}.{name}"}
    names = topic_names("{database}.{table}", SHARDS, routes=[route])
    assert list(names.values()) == ["shop.orders", "shop.orders", "shop.items"]
    numbered = topic_names("{database}.{table}", SHARDS, routes=[{**route, "topic": "{1}.{2}"}])
    assert list(numbered.values()) == ["orders.1", "orders.2", "shop.items"]
    with pytest.raises(TopicError, match=r"`shop`\.`orders_1` and `shop`\.`orders`"):
        topic_names("{database}.{table}", [*SHARDS, ("shop", "orders")], routes=[route])
    with pytest.raises(TopicError, match=r"`shop`.`items` and `crm`.`items` collide"):
        topic_names("{table}", [*SHARDS, ("crm", "items")], routes=[route])


def test_all_tables_share_the_topics_of_the_template_where_that_is_allowed() -> None:
    names = topic_names("{pipeline}.all", [*SHARDS, ("crm", "items")], shared=True)
    assert set(names.values()) == {"p.all"}
    with pytest.raises(ValidationError, match="which needs `shared: true`"):
        topic_names("{pipeline}.all", SHARDS)
    with pytest.raises(TopicError, match="metric names"):
        topic_names("{table}", [("shop", "a.b"), ("shop", "a_b")], shared=True)


def test_first_matching_route_wins_and_inherits_missing_settings() -> None:
    settings = {
        "partitions": 2,
        "configs": {"retention.ms": "9", "cleanup.policy": "delete"},
        "routes": [
            {"match": "shop.orders_*", "partitions": 7, "configs": {"retention.ms": "1"}, "partition_by": "table"},
            {"match": "shop.*", "topic": "rest", "table_field": "from"},
        ],
    }
    plain = {"name": "p", "source": {"connection": "s"}, "kafka": {"connection": "k"}}
    pipeline = Pipeline.model_validate({**plain, "topics": settings})
    orders, items = compile_routes(pipeline).of("shop", "orders_1"), compile_routes(pipeline).of("shop", "items")
    assert orders is not None
    assert items is not None
    assert (orders.topic, orders.creation_settings) == (
        "shop.orders_1",
        (7, 1, {"retention.ms": "1", "cleanup.policy": "delete"}),
    )
    assert (orders.route.partition_by, orders.route.table_field) == ("table", None)
    assert (items.topic, items.route.partitions, items.route.table_field) == ("rest", 2, TableField("from"))
    others = pipeline.model_copy(update={"tables": TableSettings(include=["crm.*"])})
    assert compile_routes(others).of("shop", "items") is None


def test_a_topic_that_two_routes_would_make_in_two_ways_is_refused() -> None:
    routes = [{"match": "*.orders_1", "topic": "o", "partitions": 1}, {"match": "*.orders_2", "topic": "o"}]
    with pytest.raises(TopicError, match="with different"):
        topic_names("{table}", SHARDS, routes=routes)


def test_a_backfills_suffix_ends_the_names_of_all_routes() -> None:
    plain = {"name": "p", "source": {"connection": "s"}, "kafka": {"connection": "k"}}
    topics = {"routes": [{"match": "shop.orders_*", "topic": "orders"}, {"match": "shop.items", "partitions": 1}]}
    pipeline = Pipeline.model_validate({**plain, "topics": topics})
    replayed = pipeline.model_copy(update={"topics": pipeline.topics.with_suffix(".replay")})
    names = [route.topic for route in compile_routes(replayed).route_tables(SHARDS).values()]
    assert names == ["orders.replay", "orders.replay", "shop.items.replay"]
