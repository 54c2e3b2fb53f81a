"""Which settings decide how an unfinished window may be finished."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.settings.message_rules import SECRETS, check_same_rules, message_rules, rules_digest, secrets_rule
from changefeed.settings.pipeline import Pipeline

PLAIN: dict[str, Any] = {"name": "shop", "source": {"connection": "mysql"}, "kafka": {"connection": "kafka"}}
START = BinlogCoordinates("bin.000001", 4)
WINDOW = Window("shop", 3, "uuid", START, START, "", "", 0)


def rules(**settings: Any) -> dict[str, str]:
    return message_rules(Pipeline.model_validate(PLAIN | settings))


@pytest.mark.parametrize(
    "changed",
    [
        {"values": {"temporal": "epoch"}},
        {"tables": {"include": ["shop.*"]}},
        {"columns": {"exclude": ["shop.*.email"]}},
        {"columns": {"mask": {"shop.*.email": {"sha256": {"connection": "salt"}}}}},
        {"tombstones": False},
        {"format": "flat"},
        {"headers": ["op"]},
        {"keys": {"shop.orders": ["customer_id"]}},
        {"keyless": "all"},
        {"rows": {"shop.orders": "status = 'paid'"}},
        {"skip": ["d"]},
        {"row_versions": "all"},
        {"topics": {"template": "{table}"}},
        {"topics": {"partition_by": "table"}},
        {"topics": {"routes": [{"match": "shop.orders_*", "topic": "orders"}]}},
        {"topics": {"routes": [{"match": "shop.audit", "format": "maxwell"}]}},
        {"publish_ddl": "off"},
        {"statements": "skip"},
    ],
)
def test_a_setting_that_shapes_messages_is_named_when_it_changed(changed: dict[str, Any]) -> None:
    check_same_rules(WINDOW, rules(), rules())
    with pytest.raises(SettingsError, match=f"`{next(iter(changed))}`"):
        check_same_rules(WINDOW, rules(), rules(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"topics": {"partitions": 12, "configs": {"retention.ms": "1"}, "create": False}},
        {"kafka": {"connection": "kafka", "transaction_rows": 7}},
        {"spark": {"slice_bytes": 1}},
        {"schedule": None, "retries": 9, "owner": "ann"},
    ],
)
def test_other_settings_may_change_in_mid_window(changed: dict[str, Any]) -> None:
    assert rules(**changed) == rules()


def test_where_a_salt_stands_is_not_in_the_rules_that_the_commit_log_keeps() -> None:
    first, second = (
        {"columns": {"mask": {"shop.*.email": {"sha256": salt}}}}
        for salt in ({"connection": "a"}, {"environment": "B"})
    )
    assert rules(**first) == rules(**second)


def test_a_window_that_was_begun_when_salts_stood_in_the_yaml_may_be_finished() -> None:
    masks = {"a.b.c": {"sha256": {"connection": "salt"}}, "a.b.d": {"text": "x"}, "a.b.e": {"characters": 3}}
    assert rules(columns={"mask": masks})["columns"] == "c26fbe16ea0584cd"
    assert rules()["columns"] == "e22b66616da8a306"


def test_rules_of_another_version_are_left_to_the_counts() -> None:
    check_same_rules(WINDOW, {}, rules(keyless="all"))
    check_same_rules(WINDOW, {**rules(), "later": "x"}, rules())
    begun = {name: value for name, value in rules().items() if name != "keyless"}
    check_same_rules(WINDOW, begun, rules(keyless="all"))


def test_the_order_of_patterns_is_a_rule_where_the_first_counts() -> None:
    one, other = {"shop.*": ["a"], "*.orders": ["b"]}, {"*.orders": ["b"], "shop.*": ["a"]}
    with pytest.raises(SettingsError, match="`keys`"):
        check_same_rules(WINDOW, rules(keys=one), rules(keys=other))


def test_options_of_a_format_count_and_a_mapping_of_its_name_alone_is_its_name() -> None:
    assert rules(format={"name": "flat"}) == rules(format="flat")
    with pytest.raises(SettingsError, match="`format`"):
        check_same_rules(WINDOW, rules(format="flat"), rules(format={"name": "flat", "add.fields": ["op"]}))


def test_a_value_setting_that_a_format_has_by_itself_changes_nothing_and_another_is_named() -> None:
    assert rules(values={"documents": "text"}) == rules()
    with pytest.raises(SettingsError, match="then `values` of"):
        check_same_rules(WINDOW, rules(), rules(values={"decimal": "string"}))


MASKED = Pipeline.model_validate(
    PLAIN
    | {
        "columns": {"mask": {"shop.*.email": {"sha256": {"connection": "salt"}}}},
        "transforms": [
            {
                "tables": "shop.*",
                "function": "obfuscate",
                "arguments": {"columns": ["email"]},
                "secrets": {"keep": {"connection": "other"}},
            }
        ],
    }
)


def secrets_of(**texts: str) -> dict[str, str]:
    return secrets_rule(MASKED, lambda connection: f"generic://:{texts[connection]}@")


def test_secrets_of_masks_and_transforms_have_one_byte_among_the_rules() -> None:
    before = secrets_of(salt="1234", other="x")
    assert (list(before), len(bytes.fromhex(before[SECRETS]))) == ([SECRETS], 1)
    assert secrets_of(salt="1234", other="x") == before
    others = [secrets_of(salt=str(guess), other="x") for guess in range(5)]
    assert any(other != before for other in others)
    assert any(secrets_of(salt="1234", other=str(guess)) != before for guess in range(5))
    assert secrets_rule(Pipeline.model_validate(PLAIN), {}.__getitem__) == {}


def test_changed_secrets_are_named_and_no_part_of_the_digest_of_all_rules() -> None:
    plain = message_rules(MASKED)
    with pytest.raises(SettingsError, match="`secrets` of the pipeline's settings changed"):
        check_same_rules(WINDOW, plain | {SECRETS: "00"}, plain | {SECRETS: "01"})
    assert rules_digest(plain | {SECRETS: "00"}) == rules_digest(plain)
