"""What may not be changed of a pipeline that hides columns, and what of a definition is shown of them."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.model.table_schema import Column, Default, TableSchema, current_time
from changefeed.settings.hidden_columns import settings_that_may_show
from changefeed.settings.message_rules import message_rules
from changefeed.settings.pipeline import Pipeline


def pipeline(**settings: Any) -> Pipeline:
    plain = {"name": "shop", "source": {"connection": "m"}, "kafka": {"connection": "k"}}
    return Pipeline.model_validate({**plain, **settings})


HIDING: dict[str, Any] = {
    "tables": {"include": ["shop.*"], "exclude": ["shop.staff"]},
    "columns": {"exclude": ["*.*.salary"], "mask": {"*.*.email": {"characters": 1}, "*.*.phone": {"text": "-"}}},
}


def changed(**settings: Any) -> list[str]:
    return settings_that_may_show(pipeline(**{**HIDING, **settings}), pipeline(**HIDING))


def test_a_pipeline_that_hides_no_columns_may_be_changed_to_anything() -> None:
    assert settings_that_may_show(pipeline(rows={"*.*": "a = 1"}, format="maxwell"), pipeline()) == []


def test_a_pipeline_that_hides_columns_may_hide_more_and_take_fewer_tables() -> None:
    assert changed() == []
    assert changed(tables={"include": ["shop.a", "shop.b"], "exclude": ["shop.c", "shop.staff"]}) == []
    columns = HIDING["columns"]
    assert changed(columns={**columns, "mask": {**columns["mask"], "*.*.more": {"text": None}}}) == []
    mask = {"*.*.phone": {"text": "-"}}
    assert changed(columns={"exclude": ["*.*.email", "*.*.salary"], "mask": mask}) == []


@pytest.mark.parametrize(
    "include", [["*.*"], ["shop.?"], ["/shop\\..*/"], ["SHOP.a"], ["shop.a", "shops.a"], ["shop_.a"]]
)
def test_a_pattern_that_is_not_one_of_its_own_may_take_other_tables(include: list[str]) -> None:
    assert changed(tables={"include": include, "exclude": ["shop.staff"]}) == ["tables"]


@pytest.mark.parametrize("setting", sorted(message_rules(pipeline()).keys() - {"style", "tables", "columns"}))
def test_all_that_shapes_messages_stays_as_it_is(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from changefeed.settings import hidden_columns

    hiding, new = pipeline(**HIDING), pipeline(**HIDING)
    rules = {id(hiding): {"a": "1", setting: "old"}, id(new): {"a": "1", setting: "new"}}
    monkeypatch.setattr(hidden_columns, "message_rules", lambda one: rules[id(one)])
    assert settings_that_may_show(new, hiding) == [setting]


def test_a_function_keeps_its_secrets() -> None:
    """Of another secret, which somebody knows, each hash can be made by them, too."""

    def hashing(connection: str) -> Pipeline:
        call = {"tables": "*.*", "function": "obfuscate", "arguments": {"columns": ["a"]}}
        return pipeline(transforms=[{**call, "secrets": {"keep": {"connection": connection}}}])

    assert settings_that_may_show(hashing("known"), hashing("salt")) == ["transforms"]
    assert settings_that_may_show(hashing("salt"), hashing("salt")) == []


def test_masks_are_kept_in_their_order_and_before_others() -> None:
    exclude, mask = HIDING["columns"]["exclude"], HIDING["columns"]["mask"]
    weaker = {"*.*.e*": {"characters": 99}}
    for masks in ({**weaker, **mask}, dict(reversed(mask.items())), {**mask, "*.*.email": {"characters": 2}}, {}):
        assert changed(columns={"exclude": exclude, "mask": masks}) == ["columns"]


def test_a_definition_shows_no_default_comment_or_label_of_a_hidden_column() -> None:
    columns = (
        Column("id", "int", comment="the key", default=Default("7")),
        Column("Salary", "enum", labels=("a", "b"), comment="c", default=Default("a")),
        Column("tier", "int", default=Default("(salary = 'a')", is_sql=True)),
        Column("at", "datetime", default=current_time(3)),
    )
    table = TableSchema("shop", "t", columns, (0,))
    described = pipeline(**HIDING).described(table)
    assert described.columns == (
        columns[0],
        Column("Salary", "enum"),
        Column("tier", "int"),
        columns[3],
    )
    assert pipeline().described(table) is table
    transforms = [{"tables": "shop.x", "function": "drop_fields", "arguments": {"columns": ["id"]}}]
    assert {each.comment for each in pipeline(transforms=transforms).described(table).columns} == {None}
