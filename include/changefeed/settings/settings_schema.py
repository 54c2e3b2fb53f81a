"""The JSON schema of a pipeline's YAML, with a description of each key, for editors."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType, ModuleType
from typing import Any, get_args

from pydantic import BaseModel

from changefeed.formats.registry import known_names
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.section import Section

EXAMPLES: Mapping[str, list[str]] = MappingProxyType(
    {
        "start": ["snapshot", "earliest", "latest"],
        "schedule": ["*/5 * * * *", "@hourly", "@daily"],
    }
)
"""Values that editors offer for keys whose values are not a list of words."""


@cache
def settings_schema() -> dict[str, Any]:
    """The JSON schema of a pipeline's YAML: keys, types, bounds, defaults and descriptions.

    Checks of several keys together are not in it.
    """
    schema = Pipeline.model_json_schema()
    models: set[type[BaseModel]] = {Pipeline, FormatChoice, *_sections(Pipeline)}
    for model in models:
        described = schema if model is Pipeline else schema["$defs"].get(model.__name__, {})
        for name, text in field_texts(model).items():
            key = model.model_fields[name].alias or name
            described.get("properties", {}).get(key, {})["description"] = text
    properties = schema["properties"]
    for key, values in EXAMPLES.items():
        properties[key]["examples"] = values
    format_name = {"type": "string", "enum": list(known_names())}
    choice = schema["$defs"][FormatChoice.__name__]
    choice["properties"]["name"] |= format_name
    schema["$defs"][FormatChoice.__name__] = {"anyOf": [format_name, choice]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Pipeline"}


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """The descriptions of a model's fields that have one: of `Field`, or the string below the field, or that of the
    field's section."""
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            texts |= texts_below(owner)
    for name, field in model.model_fields.items():
        if field.description:
            texts[name] = prose(field.description)
        elif name not in texts and (section := section_of(field.annotation)) is not None:
            texts[name] = prose(section.__doc__)
    return {name: texts[name] for name in model.model_fields if name in texts}


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a field holds: itself, or in a list or a mapping; None for a field of another kind."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return None if annotation is FormatChoice else annotation
    return next(filter(None, map(section_of, get_args(annotation))), None)


def texts_below(owner: ModuleType | type) -> dict[str, str]:
    """The string below each assignment in a module or a class, by the assigned name."""
    parsed = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    body = parsed.body[0].body if isinstance(owner, type) else parsed.body  # type: ignore[attr-defined]
    texts: dict[str, str] = {}
    for statement, after in pairwise(body):
        target: ast.expr | None = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[target.id] = prose(str(after.value.value))
    return texts


def prose(text: str | None) -> str:
    """A docstring's text as Markdown: ``name`` is `name` there."""
    return inspect.cleandoc(text or "").replace("``", "`")


def _sections(model: type[BaseModel]) -> Iterator[type[Section]]:
    """Yield the sections in ``model``, and in these."""
    for field in model.model_fields.values():
        if (section := section_of(field.annotation)) is not None:
            yield section
            yield from _sections(section)
