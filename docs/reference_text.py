"""What the generated pages of docs/reference/ are made of: Markdown tables, and types and defaults in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from changefeed.settings.format_choice import FormatChoice


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a line break or a bar in a cell does not end it."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """``text`` as code; nothing for an empty one."""
    return f"`{text}`" if text != "" else ""


def with_descriptions(what: str, names: Collection[str], texts: Mapping[str, str]) -> dict[str, str]:
    """``texts`` in the order of ``names``; raises ValueError where the two do not have the same names."""
    if missing := [name for name in names if not texts.get(name)]:
        raise ValueError(
            f"{what} without a description: {', '.join(missing)}. Add it to docs/reference_pages.py, or below the field"
        )
    if unknown := [name for name in texts if name not in names]:
        raise ValueError(f"descriptions of {what} that the code does not have: {', '.join(unknown)}. Remove them")
    return {name: texts[name] for name in names}


def sentence(text: str) -> str:
    """``text`` with a full stop at its end."""
    return text if not text or text.endswith((".", ")")) else text + "."


def type_of(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A JSON schema in words, with its bounds."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return "name, or mapping" if name == FormatChoice.__name__ else type_of(definitions[name], definitions)
    if choices := schema.get("anyOf"):
        kinds = [type_of(each, definitions) for each in choices if each != {"type": "null"}]
        return " or ".join(kinds)
    if words := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return ", ".join(code(word) for word in words if word != "")
    kind = schema.get("type")
    kind = next((each for each in kind if each != "null"), "") if isinstance(kind, list) else kind
    if kind == "array":
        return f"list of {_plural(type_of(schema['items'], definitions))}"
    if kind == "object" and "properties" in schema:
        return "section"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"mapping to {_plural(type_of(values, definitions))}" if isinstance(values, dict) else "mapping"
    if kind == "string":
        longest = schema.get("maxLength")
        return "text" + (f", at most {longest:,} characters" if longest else "")
    if kind in ("integer", "number"):
        return kind + _bounds(schema)
    return "true or false" if kind == "boolean" else "any value"


def _plural(kind: str) -> str:
    for one, several in (("section", "sections"), ("list of", "lists of")):
        if kind.startswith(one):
            return several + kind.removeprefix(one)
    return kind


def _bounds(schema: Mapping[str, Any]) -> str:
    low = schema["exclusiveMinimum"] + 1 if "exclusiveMinimum" in schema else schema.get("minimum")
    high = schema["exclusiveMaximum"] - 1 if "exclusiveMaximum" in schema else schema.get("maximum")
    if schema["type"] == "number":
        return f", above {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else ""
    low, high = (None if bound is None else int(bound) for bound in (low, high))
    if high is not None and high < 2**31 - 1:
        return f", {low:,} to {high:,}" if low is not None else f", at most {high:,}"
    return f", at least {low:,}" if low is not None else ""


def with_unit(name: str, kind: str) -> str:
    """``kind`` with the unit that a key's ``name`` contains in place of "number"."""
    units = ("bytes", "seconds", "minutes", "hours", "rows", "percent")
    if name.endswith("_per_second"):
        return kind.replace("integer", f"{name.removeprefix('max_').split('_')[0]} per second", 1)
    unit = next(
        (unit for unit in units if name.endswith(unit) or f"_{unit}_" in name or name.startswith(f"{unit}_")), ""
    )
    return kind.replace("integer", unit, 1).replace("number", unit, 1) if unit else kind


def default_of(field: Any) -> str:
    """The default of a model's field, or "required"."""
    if field.is_required():
        return "required"
    return value_of(field.default_factory() if field.default is PydanticUndefined else field.default)


def value_of(value: object) -> str:
    """A default as YAML has it; nothing for null, and for a section that has defaults of its own."""
    if isinstance(value, FormatChoice):
        return code(value.name)
    if value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, frozenset | tuple):
        return code(",".join(sorted(map(str, value))))
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{code(value)} ({value >> 30} GiB)" if value % (1 << 30) == 0 else f"{code(value)} ({value >> 20} MiB)"
    return code(getattr(value, "name", value) if not isinstance(value, str | int | float | list | dict) else value)
