"""Hides secrets in messages about settings, and in YAML that is shown.

A secret is a setting whose field has `repr=False`. Its value is in no message, in no repr, and not in the YAML that is
shown to users who may not change it.
"""

from __future__ import annotations

import re
from typing import Any, get_args

import yaml
from pydantic_core import ErrorDetails

from changefeed.errors import did_you_mean
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.section import Section
from changefeed.settings.yaml_text import YamlText

Location = tuple[str | int, ...]

HIDDEN = "***"
_NAME = re.compile(r"[A-Za-z0-9_.*?-]{1,64}")
_ADDRESS = re.compile(r"://|\S@\S")
_SECTION_EXPECTED = frozenset({"model_type", "model_attributes_type", "dict_type", "list_type"})
_QUOTED = re.compile(r"""(["']).*\1""", re.DOTALL)


def describe_value(model: type[Section], location: Location, details: ErrorDetails) -> str:
    """` is 'VALUE'` for a message about the setting at ``location``; '' if the value may contain a secret.

    A scalar in place of a section may be a secret, too.
    """
    value = details["input"]
    if isinstance(value, dict | list) or details["type"] in _SECTION_EXPECTED or is_secret(location, model):
        return ""
    text = str(value)[:100]
    return "" if _ADDRESS.search(text) else f" is {text!r}"


def describe_key(location: Location, value: object, known: list[str]) -> str:
    """The key at ``location`` for a message: quoted, with the nearest known key; or a text that does not quote it.

    A key without a value is quoted only if it is a misspelled known key. Otherwise it may be a secret: in YAML,
    `{sha256:salt}` has the key `sha256:salt` and no value.
    """
    key = str(location[-1])
    near = did_you_mean(key, known)
    looks_so = near and any(len(key) <= len(name) + 2 for name in known)
    if not _NAME.fullmatch(key) or (value is None and not looks_so):
        return "(not shown, as it may be a value)"
    return repr(".".join(map(str, location))) + near


def describe_yaml_error(error: Exception) -> str:
    """The problem and its position in a text that is not YAML. Quotes nothing of the text, which may have secrets."""
    at = getattr(error, "problem_mark", None)
    problem = _QUOTED.sub("(…)", str(getattr(error, "problem", None) or "a value cannot be read as what it looks like"))
    return f"line {at.line + 1}, column {at.column + 1}: {problem}" if at else problem


def redact_yaml(text: str) -> str:
    """A pipeline's YAML for users who may not change it: without secrets and comments. Comments may contain
    secrets."""
    return yaml.safe_dump(_redact(YamlText.of(text).values, ()), sort_keys=False, allow_unicode=True)


def _redact(value: Any, location: Location) -> Any:
    if is_secret(location):
        return HIDDEN
    if isinstance(value, dict):
        return {key: _redact(item, (*location, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_redact(item, (*location, index)) for index, item in enumerate(value)]
    return value


def is_secret(location: Location, section: type[Section] = Pipeline) -> bool:
    """Whether the setting at ``location`` may be a secret; unknown settings may be."""
    model: Any = section
    for part in location:
        if isinstance(model, type) and issubclass(model, Section):
            if model is FormatChoice and part not in model.model_fields:
                return False  # options of formats are no secrets
            field = model.model_fields.get(str(part))
            if field is None or not field.repr:
                return True
            model = field.annotation
        elif inside := [kind for kind in get_args(model) if kind is not type(None)]:
            model = inside[-1]  # the type in a list, a mapping or an optional value
    return False
