"""Reading a pipelines folder: YAML -> `Pipeline`, with the file and line of each mistake."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from changefeed.errors import SettingsError, did_you_mean
from changefeed.pipelines.pipeline import Pipeline
from changefeed.pipelines.secrets import Location, shown_key, shown_value, yaml_problem

NO_YAML = (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError)
"""What PyYAML raises, the last four for scalars that are not what their form or tag says: 2020-99-99, `!!bool x`."""


def pipelines_folder() -> Path:
    """The folder of pipelines: CHANGEFEED_PIPELINES; or `include/pipelines` of the checkout that the package stands in;
    or, for an installed package, `include/pipelines` of the Airflow project (AIRFLOW_HOME, by default ~/airflow)."""
    if named := os.environ.get("CHANGEFEED_PIPELINES"):
        return Path(named)
    of_checkout = Path(__file__).parents[2] / "pipelines"
    if of_checkout.is_dir():
        return of_checkout
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "include" / "pipelines"


def load_pipeline(name: str, folder: Path | None = None) -> Pipeline:
    """The pipeline of that name; raises SettingsError for one that is wrong or does not exist.

    Only its own file is validated: another pipeline's mistake does not stop this one.
    """
    folder = folder or pipelines_folder()
    paths = files_of(name, folder)
    if not paths:
        names = sorted({_named(path) for path in pipeline_files(folder)})
        raise SettingsError(
            f"no pipeline {name!r} in {str(folder)!r}, which "
            f"{'has ' + (', '.join(names) or 'none') if folder.is_dir() else 'does not exist'}"
            f"{did_you_mean(name, names)}"
        )
    return read_pipeline(paths[0])


def load_pipelines(folder: Path | None = None) -> tuple[dict[str, Pipeline], dict[Path, SettingsError]]:
    """All pipelines by name, and by file the error of each that is wrong.

    Of files with one name the first of `by_precedence` is the pipeline, and the others are wrong: who copies a file
    does not stop the pipeline that is running.
    """
    pipelines: dict[str, Pipeline] = {}
    errors: dict[Path, SettingsError] = {}
    files: dict[str, list[Path]] = {}
    read: dict[Path, Pipeline] = {}
    for path in pipeline_files(folder or pipelines_folder()):
        try:
            read[path] = read_pipeline(path)
        except SettingsError as error:
            errors[path] = error
        files.setdefault(read[path].name if path in read else _named(path), []).append(path)
    for name, paths in files.items():
        first, *others = by_precedence(name, paths)
        if first in read:
            pipelines[name] = read[first]
        for path in others:
            errors.setdefault(path, SettingsError(_name_in_use(name, path, first)))
    return pipelines, errors


def files_of(name: str, folder: Path) -> list[Path]:
    """The files of pipeline ``name``: the first is the pipeline, any other one is refused."""
    return by_precedence(name, [path for path in pipeline_files(folder) if _named(path) == name])


def by_precedence(name: str, paths: list[Path]) -> list[Path]:
    """The file that is named as its pipeline first, then the older: a copy is neither."""
    if len(paths) < 2:
        return paths
    return sorted(paths, key=lambda path: (path.stem != name, path.stat().st_mtime_ns, path.name))


def pipeline_files(folder: Path) -> list[Path]:
    """The YAML files of a folder of pipelines, by name."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def read_pipeline(path: Path) -> Pipeline:
    """One file; raises SettingsError with file, line, key and the nearest valid key."""
    try:
        text = path.read_text()
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        values = yaml.load(text, Loader=yaml.CSafeLoader)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path.name}: cannot be read: byte {error.start} is no UTF-8") from None
    except OSError as error:
        raise SettingsError(f"{path.name}: cannot be read: {error}") from error
    except NO_YAML as error:  # its text, and so its traceback, may quote a secret
        raise SettingsError(f"{path.name}: is not YAML: {yaml_problem(error)}") from None
    if twice := list(_repeated(root, ())):
        raise SettingsError("\n".join(f"{path.name}, line {line}: key {key} stands here again" for key, line in twice))
    if not isinstance(values, dict):
        raise SettingsError(f"{path.name}: wanted a mapping with name, source and kafka, found {type(values).__name__}")
    try:
        return Pipeline.model_validate(values).of_file(path.name)
    except ValidationError as error:
        lines = [_message(path, root, details) for details in error.errors()]
        raise SettingsError("\n".join(lines)) from None


def _message(path: Path, root: yaml.Node | None, details: ErrorDetails) -> str:
    location: Location = details["loc"]
    key = ".".join(str(part) for part in location) or "(the whole file)"
    where = f"{path.name}, line {_line_of(root, location)}"
    if details["type"] == "extra_forbidden":
        known = _keys_at(location[:-1])
        unknown = shown_key(location, details["input"], known)
        return f"{where}: unknown key {unknown}; valid keys: {', '.join(known)}"
    if details["type"] == "invalid_key":
        return f"{where}: a key of {'.'.join(map(str, location[:-1])) or '(the whole file)'} is no text"
    if details["type"] == "missing":
        return f"{where}: key {key!r} is missing"
    reason = details["msg"].removeprefix("Value error, ")
    return f"{where}: {key!r}{shown_value(location, details)}: {reason[:1].lower()}{reason[1:]}"


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


def _keys_at(location: Location) -> list[str]:
    model: Any = Pipeline
    for part in location:
        inside = get_args(model)  # of a list or a mapping; the part is then an index or a key of its own
        model = inside[-1] if inside else model.model_fields[str(part)].annotation
    return list(model.model_fields)


def _named(path: Path) -> str:
    try:
        values = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    except (OSError, *NO_YAML):
        return path.stem
    return str(values["name"]) if isinstance(values, Mapping) and "name" in values else path.stem


def _name_in_use(name: str, path: Path, first: Path) -> str:
    return (
        f"{path.name}: its name is {name!r}, which is the pipeline of {first.name}; that one goes on, and this file is "
        "left out. A name is the key of a checkpoint, so each pipeline needs its own: give this file another name, or "
        "remove it."
    )
