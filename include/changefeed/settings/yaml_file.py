"""A YAML file of settings -> a `Section`, with the file and line of each mistake."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from changefeed.errors import SettingsError
from changefeed.settings.secrets import Location, shown_key, shown_value, yaml_problem
from changefeed.settings.section import MistakeInsideError, Section
from changefeed.settings.yaml_text import LONGEST, NO_YAML, RefusedYamlError, YamlText

_SHOWN = 20
"""How many mistakes of a file a message has."""

SectionT = TypeVar("SectionT", bound=Section)


def read_section(path: Path, model: type[SectionT]) -> SectionT:
    """One file as a ``model``; raises SettingsError with file, line, key and the nearest valid key."""
    return section_of(settings_text(path), path.name, model)


def settings_text(path: Path) -> str:
    """The text of a file, up to a character more than is taken; raises SettingsError where it cannot be read."""
    if not path.is_file():  # of a pipe or a device there may be no end
        raise SettingsError(f"{path.name}: cannot be read: it is no file")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read(LONGEST + 1)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path.name}: cannot be read: byte {error.start} is no UTF-8") from None
    except OSError as error:
        raise SettingsError(f"{path.name}: cannot be read: {error}") from error


def section_of(text: str, file: str, model: type[SectionT]) -> SectionT:
    """``text`` as a ``model``; raises SettingsError as `read_section` does, with ``file`` as the file's name."""
    try:
        read = YamlText.of(text)
    except RefusedYamlError as error:
        raise SettingsError(f"{file}: {yaml_problem(error)}") from None
    except NO_YAML as error:  # its text, and so its traceback, may quote a secret
        raise SettingsError(f"{file}: is not YAML: {yaml_problem(error)}") from None
    if twice := list(islice(_repeated(read.root, ()), _SHOWN)):
        raise SettingsError("\n".join(f"{file}, line {line}: key {key} stands here again" for key, line in twice))
    if not isinstance(read.values, dict):
        keys = ", ".join(name for name, field in model.model_fields.items() if field.is_required()) or "settings"
        raise SettingsError(f"{file}: wanted a mapping with {keys}, found {type(read.values).__name__}")
    try:
        return model.model_validate(read.values)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        lines = [_message(model, file, read.root, details) for details in mistakes[:_SHOWN]]
        more = [f"{file}: and {len(mistakes) - _SHOWN:,} more mistakes"] if len(mistakes) > _SHOWN else []
        raise SettingsError("\n".join(lines + more)) from None


def _message(model: type[Section], file: str, root: yaml.Node | None, details: ErrorDetails) -> str:
    location: Location = details["loc"]
    if isinstance(error := details.get("ctx", {}).get("error"), MistakeInsideError):
        location = (*location, *error.path)
    key = ".".join(str(part) for part in location) or "(the whole file)"
    where = f"{file}, line {_line_of(root, location)}"
    if details["type"] == "extra_forbidden":
        known = _keys_at(model, location[:-1])
        unknown = shown_key(location, details["input"], known)
        return f"{where}: unknown key {unknown}; valid keys: {', '.join(known)}"
    if details["type"] == "invalid_key":
        return f"{where}: a key of {'.'.join(map(str, location[:-1])) or '(the whole file)'} is no text"
    if details["type"] == "missing":
        return f"{where}: key {key!r} is missing"
    reason = details["msg"].removeprefix("Value error, ")
    return f"{where}: {key!r}{shown_value(model, location, details)}: {reason[:1].lower()}{reason[1:]}"


def _line_of(node: yaml.Node | None, location: Location) -> int:
    """The line, from 1, of the deepest node that ``location`` leads to."""
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


def _repeated(node: yaml.Node | None, location: Location) -> Iterator[tuple[str, int]]:
    """Keys, as messages show them, that an earlier line of their mapping has already: YAML would let the last one win
    in silence."""
    if isinstance(node, yaml.MappingNode):
        known = set()
        for key, value in node.value:
            here = (*location, str(key.value))
            if key.value in known:
                yield shown_key(here, value.value or None, []), key.start_mark.line + 1
            known.add(key.value)
            yield from _repeated(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(item, (*location, index))


def _keys_at(model: Any, location: Location) -> list[str]:
    for part in location:
        inside = get_args(model)  # of a list or a mapping; the part is then an index or a key of its own
        model = inside[-1] if inside else model.model_fields[str(part)].annotation
        if type(None) in (either := get_args(model)):
            model = next(kind for kind in either if kind is not type(None))
    return list(model.model_fields)
