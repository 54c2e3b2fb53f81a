"""Reads a YAML file of settings into a `Section`; errors name the file and line of each mistake."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from changefeed.errors import SettingsError
from changefeed.settings.secrets import Location, describe_key, describe_value, describe_yaml_error
from changefeed.settings.section import NestedSettingError, Section
from changefeed.settings.yaml_text import MAX_CHARACTERS, YAML_ERRORS, RefusedYamlError, YamlText

_MAX_MISTAKES = 20
"""Maximum number of mistakes of a file that a message lists."""

RENAMED_KEYS = {"unknown_definition": "unknown_schema"}
"""Current names of keys that were renamed, by the earlier name."""

SectionT = TypeVar("SectionT", bound=Section)


def read_section(path: Path, model: type[SectionT]) -> SectionT:
    """The section in a file; raises SettingsError with file, line, key and the nearest valid key."""
    return parse_section(settings_text(path), path.name, model)


def settings_text(path: Path) -> str:
    """The text of a file, at most one character more than the limit; raises SettingsError if it cannot be read."""
    if not path.is_file():  # a pipe or a device may have no end
        raise SettingsError(f"{path.name}: cannot be read: it is not a file")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path.name}: cannot be read: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise SettingsError(f"{path.name}: cannot be read: {error}") from error


def parse_section(text: str, file: str, model: type[SectionT]) -> SectionT:
    """The section in ``text``; raises SettingsError as `read_section` does, with ``file`` as the file's name."""
    try:
        read = YamlText.of(text)
    except RefusedYamlError as error:
        raise SettingsError(f"{file}: {describe_yaml_error(error)}") from None
    except YAML_ERRORS as error:  # the error may quote a secret
        raise SettingsError(f"{file}: is not YAML: {describe_yaml_error(error)}") from None
    if twice := list(islice(_find_repeated_keys(read.root, ()), _MAX_MISTAKES)):
        raise SettingsError("\n".join(f"{file}, line {line}: key {key} is repeated" for key, line in twice))
    if not isinstance(read.values, dict):
        keys = ", ".join(name for name, field in model.model_fields.items() if field.is_required()) or "settings"
        raise SettingsError(f"{file}: expected a mapping with {keys}, found {type(read.values).__name__}")
    try:
        return model.model_validate(read.values)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        lines = [_describe_mistake(model, file, read.root, details) for details in mistakes[:_MAX_MISTAKES]]
        more = [f"{file}: and {len(mistakes) - _MAX_MISTAKES:,} more mistakes"] if len(mistakes) > _MAX_MISTAKES else []
        raise SettingsError("\n".join(lines + more)) from None


def _describe_mistake(model: type[Section], file: str, root: yaml.Node | None, details: ErrorDetails) -> str:
    location: Location = details["loc"]
    if isinstance(error := details.get("ctx", {}).get("error"), NestedSettingError):
        location = (*location, *error.path)
    key = ".".join(str(part) for part in location) or "(the file)"
    where = f"{file}, line {_line_of(root, location)}"
    if details["type"] == "extra_forbidden":
        if key in RENAMED_KEYS:
            return f"{where}: key {key!r} is now named {RENAMED_KEYS[key]!r}: rename it in this file"
        known = _keys_at(model, location[:-1])
        unknown = describe_key(location, details["input"], known)
        return f"{where}: unknown key {unknown}; valid keys: {', '.join(known)}"
    if details["type"] == "invalid_key":
        return f"{where}: a key of {'.'.join(map(str, location[:-1])) or '(the file)'} is not a text"
    if details["type"] == "missing":
        return f"{where}: key {key!r} is missing"
    reason = details["msg"].removeprefix("Value error, ")
    return f"{where}: {key!r}{describe_value(model, location, details)}: {reason[:1].lower()}{reason[1:]}"


def _line_of(node: yaml.Node | None, location: Location) -> int:
    """The line, from 1, of the deepest existing node on the path ``location``."""
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if entry is None:
                break
            line, node = entry[0].start_mark.line + 1, entry[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _find_repeated_keys(node: yaml.Node | None, location: Location) -> Iterator[tuple[str, int]]:
    """Yield repeated keys of mappings, as messages show them, with their lines. YAML itself would silently use the
    last."""
    if isinstance(node, yaml.MappingNode):
        known = set()
        for key, value in node.value:
            here = (*location, str(key.value))
            if key.value in known:
                yield describe_key(here, value.value or None, []), key.start_mark.line + 1
            known.add(key.value)
            yield from _find_repeated_keys(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _find_repeated_keys(item, (*location, index))


def _keys_at(model: Any, location: Location) -> list[str]:
    for part in location:
        inside = get_args(model)  # in a list or a mapping the part is an index or a key
        model = inside[-1] if inside else model.model_fields[str(part)].annotation
        if type(None) in (either := get_args(model)):
            model = next(kind for kind in either if kind is not type(None))
    return list(model.model_fields)
