"""Rules by which an unfinished window may be finished."""

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
        {"unknown_schema": "begin"},
        {"unknown_schema": {"shop.*": "placeholder"}},
    ],
)
def test_changed_setting_that_shapes_messages_is_named(changed: dict[str, Any]) -> None:
    check_same_rules(WINDOW, rules(), rules())
    with pytest.raises(SettingsError, match=f"`{next(iter(changed))}`"):
        check_same_rules(WINDOW, rules(), rules(**changed))


def test_rule_of_unknown_schema_has_its_name_in_existing_commit_logs() -> None:
    assert "unknown_definition" in rules()
    assert "unknown_schema" not in rules()


@pytest.mark.parametrize(
    "changed",
    [
        {"topics": {"partitions": 12, "configs": {"retention.ms": "1"}, "create": False}},
        {"kafka": {"connection": "kafka", "transaction_rows": 7}},
        {"spark": {"slice_bytes": 1}},
        {"schedule": None, "retries": 9, "owner": "ann"},
    ],
)
def test_other_settings_may_change_within_a_window(changed: dict[str, Any]) -> None:
    assert rules(**changed) == rules()


def test_rules_do_not_contain_the_place_of_a_salt() -> None:
    first, second = (
        {"columns": {"mask": {"shop.*.email": {"sha256": salt}}}}
        for salt in ({"connection": "a"}, {"environment": "B"})
    )
    assert rules(**first) == rules(**second)


def test_window_from_before_salts_left_the_yaml_can_be_finished() -> None:
    masks = {"a.b.c": {"sha256": {"connection": "salt"}}, "a.b.d": {"text": "x"}, "a.b.e": {"characters": 3}}
    assert rules(columns={"mask": masks})["columns"] == "c26fbe16ea0584cd"
    assert rules()["columns"] == "e22b66616da8a306"


def test_rules_of_another_version_are_not_compared() -> None:
    check_same_rules(WINDOW, {}, rules(keyless="all"))
    check_same_rules(WINDOW, {**rules(), "later": "x"}, rules())
    begun = {name: value for name, value in rules().items() if name != "keyless"}
    check_same_rules(WINDOW, begun, rules(keyless="all"))


def test_order_of_patterns_is_part_of_the_rule() -> None:
    one, other = {"shop.*": ["a"], "*.orders": ["b"]}, {"*.orders": ["b"], "shop.*": ["a"]}
    with pytest.raises(SettingsError, match="`keys`"):
        check_same_rules(WINDOW, rules(keys=one), rules(keys=other))


def test_options_of_a_format_are_part_of_the_rule() -> None:
    assert rules(format={"name": "flat"}) == rules(format="flat")
    with pytest.raises(SettingsError, match="`format`"):
        check_same_rules(WINDOW, rules(format="flat"), rules(format={"name": "flat", "add.fields": ["op"]}))


def test_value_setting_equal_to_the_formats_default_is_no_change() -> None:
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


def test_rule_of_secrets_is_one_byte() -> None:
    before = secrets_of(salt="1234", other="x")
    assert (list(before), len(bytes.fromhex(before[SECRETS]))) == ([SECRETS], 1)
    assert secrets_of(salt="1234", other="x") == before
    others = [secrets_of(salt=str(guess), other="x") for guess in range(5)]
    assert any(other != before for other in others)
    assert any(secrets_of(salt="1234", other=str(guess)) != before for guess in range(5))
    assert secrets_rule(Pipeline.model_validate(PLAIN), {}.__getitem__) == {}


def test_changed_secrets_are_named_and_not_in_the_digest_of_rules() -> None:
    plain = message_rules(MASKED)
    with pytest.raises(SettingsError, match="`secrets` of the pipeline's settings changed"):
        check_same_rules(WINDOW, plain | {SECRETS: "00"}, plain | {SECRETS: "01"})
    assert rules_digest(plain | {SECRETS: "00"}) == rules_digest(plain)
