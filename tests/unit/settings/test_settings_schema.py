"""The JSON schema of a pipeline's YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from changefeed.errors import SettingsError
from changefeed.formats.registry import known_names
from changefeed.settings.file import parse_pipeline
from changefeed.settings.settings_schema import EXAMPLES, settings_schema

REQUIRED = "name: x\nsource: {connection: m}\nkafka: {connection: k}\n"


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for section, described in ({"": schema} | schema["$defs"]).items():
        for key, value in described.get("properties", {}).items():
            yield f"{section}.{key}", value


def test_each_key_has_a_description() -> None:
    without = [key for key, value in properties(settings_schema()) if not value.get("description")]
    assert without == []


def test_schema_has_words_aliases_and_formats() -> None:
    keys = dict(properties(settings_schema()))
    assert keys[".statements"]["enum"] == ["fail", "publish", "skip"]
    assert "SourceSettings.register" in keys
    name, choice = settings_schema()["$defs"]["FormatChoice"]["anyOf"]
    assert name["enum"] == choice["properties"]["name"]["enum"] == list(known_names())


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in EXAMPLES.items() for value in values])
def test_offered_values_are_accepted(key: str, value: str) -> None:
    assert getattr(parse_pipeline(f"{REQUIRED}{key}: '{value}'\n", "x.yaml"), key) == value
    with pytest.raises(SettingsError):
        parse_pipeline(f"{REQUIRED}{key}: '{value} {value}'\n", "x.yaml")
