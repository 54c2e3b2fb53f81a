"""Settings that may reveal hidden columns, and table schemas without their values."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.model.table_schema import Column, Default, TableSchema, current_time
from changefeed.settings.hidden_columns import find_revealing_settings
from changefeed.settings.message_rules import message_rules, setting_name
from changefeed.settings.pipeline import Pipeline


def pipeline(**settings: Any) -> Pipeline:
    plain = {"name": "shop", "source": {"connection": "m"}, "kafka": {"connection": "k"}}
    return Pipeline.model_validate({**plain, **settings})


HIDING: dict[str, Any] = {
    "tables": {"include": ["shop.*"], "exclude": ["shop.staff"]},
    "columns": {"exclude": ["*.*.salary"], "mask": {"*.*.email": {"characters": 1}, "*.*.phone": {"text": "-"}}},
}


def changed(**settings: Any) -> list[str]:
    return find_revealing_settings(pipeline(**{**HIDING, **settings}), pipeline(**HIDING))


def test_pipeline_without_hidden_columns_may_be_changed_freely() -> None:
    assert find_revealing_settings(pipeline(rows={"*.*": "a = 1"}, format="maxwell"), pipeline()) == []


def test_pipeline_may_hide_more_columns_and_capture_fewer_tables() -> None:
    assert changed() == []
    assert changed(tables={"include": ["shop.a", "shop.b"], "exclude": ["shop.c", "shop.staff"]}) == []
    columns = HIDING["columns"]
    assert changed(columns={**columns, "mask": {**columns["mask"], "*.*.more": {"text": None}}}) == []
    mask = {"*.*.phone": {"text": "-"}}
    assert changed(columns={"exclude": ["*.*.email", "*.*.salary"], "mask": mask}) == []


@pytest.mark.parametrize(
    "include", [["*.*"], ["shop.?"], ["/shop\\..*/"], ["SHOP.a"], ["shop.a", "shops.a"], ["shop_.a"]]
)
def test_new_pattern_may_match_other_tables(include: list[str]) -> None:
    assert changed(tables={"include": include, "exclude": ["shop.staff"]}) == ["tables"]


@pytest.mark.parametrize("setting", sorted(message_rules(pipeline()).keys() - {"style", "tables", "columns"}))
def test_change_of_a_message_rule_may_reveal_hidden_values(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from changefeed.settings import hidden_columns

    hiding, new = pipeline(**HIDING), pipeline(**HIDING)
    rules = {id(hiding): {"a": "1", setting: "old"}, id(new): {"a": "1", setting: "new"}}
    monkeypatch.setattr(hidden_columns, "message_rules", lambda one: rules[id(one)])
    assert find_revealing_settings(new, hiding) == [setting_name(setting)]


def test_other_secrets_of_a_function_may_reveal_values() -> None:
    """A user could compute all hashes of another secret that the user knows."""

    def hashing(connection: str) -> Pipeline:
        call = {"tables": "*.*", "function": "obfuscate", "arguments": {"columns": ["a"]}}
        return pipeline(transforms=[{**call, "secrets": {"keep": {"connection": connection}}}])

    assert find_revealing_settings(hashing("known"), hashing("salt")) == ["transforms"]
    assert find_revealing_settings(hashing("salt"), hashing("salt")) == []


def test_existing_masks_stay_first_and_in_order() -> None:
    exclude, mask = HIDING["columns"]["exclude"], HIDING["columns"]["mask"]
    weaker = {"*.*.e*": {"characters": 99}}
    for masks in ({**weaker, **mask}, dict(reversed(mask.items())), {**mask, "*.*.email": {"characters": 2}}, {}):
        assert changed(columns={"exclude": exclude, "mask": masks}) == ["columns"]


def test_hidden_column_has_no_default_comment_or_labels() -> None:
    columns = (
        Column("id", "int", comment="the key", default=Default("7")),
        Column("Salary", "enum", labels=("a", "b"), comment="c", default=Default("a")),
        Column("tier", "int", default=Default("(salary = 'a')", is_sql=True)),
        Column("at", "datetime", default=current_time(3)),
    )
    table = TableSchema("shop", "t", columns, (0,))
    redact_table = pipeline(**HIDING).redact_table(table)
    assert redact_table.columns == (
        columns[0],
        Column("Salary", "enum"),
        Column("tier", "int"),
        columns[3],
    )
    assert pipeline().redact_table(table) is table
    transforms = [{"tables": "shop.x", "function": "drop_fields", "arguments": {"columns": ["id"]}}]
    assert {each.comment for each in pipeline(transforms=transforms).redact_table(table).columns} == {None}
