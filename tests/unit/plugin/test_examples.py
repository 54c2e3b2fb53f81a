"""Each parameter and field of the REST API has a description, and an example that its schema allows."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from changefeed_web.app import create_app
from changefeed_web.examples import EXAMPLES, fields_of_bodies


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    return create_app().openapi()


def parameters(api: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for path in api["paths"].values() for call in path.values() for each in call.get("parameters", ())]


def test_each_parameter_has_a_description_and_a_valid_example(api: dict[str, Any]) -> None:
    for each in parameters(api):
        assert each["description"], each["name"]
        jsonschema.validate(each["example"], {**each["schema"], "components": api["components"]})


def test_each_field_of_a_body_has_a_description_and_a_valid_example(api: dict[str, Any]) -> None:
    for model, field, schema in fields_of_bodies(api):
        assert schema["description"], f"{model}.{field}"
        (example,) = schema["examples"]
        jsonschema.validate(example, {**schema, "components": api["components"]})


def test_no_example_is_left_over(api: dict[str, Any]) -> None:
    named = {each["name"].lower() for each in parameters(api)} | {field for _, field, _ in fields_of_bodies(api)}
    assert EXAMPLES.keys() == named
