"""What of the YAML of settings may be shown. A secret is a setting whose field has `repr=False`: its values stand in no
message, in no repr, and not in the YAML that somebody reads who may not change it.
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
_SECTION_WANTED = frozenset({"model_type", "model_attributes_type", "dict_type", "list_type"})
_QUOTED = re.compile(r"""(["']).*\1""", re.DOTALL)


def shown_value(model: type[Section], location: Location, details: ErrorDetails) -> str:
    """` is 'VALUE'` for a message about the setting at ``location``; nothing where it may be, or hold, a secret.

    A scalar where a section was wanted is most likely something else than it was taken for.
    """
    value = details["input"]
    if isinstance(value, dict | list) or details["type"] in _SECTION_WANTED or is_secret(location, model):
        return ""
    text = str(value)[:100]
    return "" if _ADDRESS.search(text) else f" is {text!r}"


def shown_key(location: Location, value: object, known: list[str]) -> str:
    """The key that ends ``location``, quoted for a message, with the known one that is near; or words for it.

    `{sha256:salt}` is a key without a value in YAML: such a one is only shown where it is a known one, misspelled.
    """
    key = str(location[-1])
    near = did_you_mean(key, known)
    looks_so = near and any(len(key) <= len(name) + 2 for name in known)
    if not _NAME.fullmatch(key) or (value is None and not looks_so):
        return "(not shown, as it may be a value)"
    return repr(".".join(map(str, location))) + near


def yaml_problem(error: Exception) -> str:
    """What is wrong with a text that is no YAML, and where, without the text."""
    mark = getattr(error, "problem_mark", None)
    problem = _QUOTED.sub("(…)", str(getattr(error, "problem", None) or "a value cannot be read as what it looks like"))
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def public_yaml(text: str) -> str:
    """A pipeline's YAML for those who may only look: without secrets, and without comments, which may hold some."""
    return yaml.safe_dump(_public(YamlText.of(text).values, ()), sort_keys=False, allow_unicode=True)


def _public(value: Any, location: Location) -> Any:
    if is_secret(location):
        return HIDDEN
    if isinstance(value, dict):
        return {key: _public(item, (*location, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_public(item, (*location, index)) for index, item in enumerate(value)]
    return value


def is_secret(location: Location, section: type[Section] = Pipeline) -> bool:
    """Whether a setting of ``section`` may be a secret; also one that it does not have."""
    model: Any = section
    for part in location:
        if isinstance(model, type) and issubclass(model, Section):
            if model is FormatChoice and part not in model.model_fields:
                return False  # an option of a format: none holds a secret
            field = model.model_fields.get(str(part))
            if field is None or not field.repr:
                return True
            model = field.annotation
        elif inside := [kind for kind in get_args(model) if kind is not type(None)]:
            model = inside[-1]  # of a list, a mapping, or what may be null
    return False
