"""The folder of pipelines: its files, and the file of a pipeline's name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import yaml

from changefeed.errors import SettingsError, did_you_mean
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import NotifierSettings
from changefeed.settings.yaml_file import parse_section, settings_text
from changefeed.settings.yaml_text import MAX_CHARACTERS, YAML_ERRORS, YamlText


def pipelines_folder() -> Path:
    """The folder of pipelines.

    It is CHANGEFEED_PIPELINES; or `include/pipelines` of the checkout that contains the package; or, for an installed
    package, `include/pipelines` of the Airflow project (AIRFLOW_HOME, by default ~/airflow).
    """
    if named := os.environ.get("CHANGEFEED_PIPELINES"):
        return Path(named)
    of_checkout = Path(__file__).parents[2] / "pipelines"
    if of_checkout.is_dir():
        return of_checkout
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "include" / "pipelines"


def load_pipeline(name: str, folder: Path | None = None) -> Pipeline:
    """The pipeline ``name``; raises SettingsError if its file is wrong or does not exist.

    Other files are not validated, so that a mistake there does not stop this pipeline.
    """
    folder = folder or pipelines_folder()
    paths = find_files(name, folder)
    if not paths:
        names = sorted({read_name(path) for path in pipeline_files(folder)})
        raise SettingsError(
            f"no pipeline {name!r} in {str(folder)!r}, which "
            f"{'has ' + (', '.join(names) or 'none') if folder.is_dir() else 'does not exist'}"
            f"{did_you_mean(name, names)}"
        )
    return read_pipeline(paths[0])


def load_pipelines(
    folder: Path | None = None, read_file: Callable[[Path], Pipeline] | None = None
) -> tuple[dict[str, Pipeline], dict[Path, SettingsError]]:
    """The valid pipelines by name, and the error of each invalid file. ``read_file`` replaces `read_pipeline`.

    If several files have the same pipeline name, the first in the order of `sort_by_precedence` is the pipeline, and
    the others are errors: a copy of a file does not stop the pipeline that runs.
    """
    pipelines: dict[str, Pipeline] = {}
    errors: dict[Path, SettingsError] = {}
    files: dict[str, list[Path]] = {}
    read: dict[Path, Pipeline] = {}
    for path in pipeline_files(folder or pipelines_folder()):
        try:
            read[path] = (read_file or read_pipeline)(path)
        except SettingsError as error:
            errors[path] = error
        files.setdefault(read[path].name if path in read else read_name(path), []).append(path)
    for name, paths in files.items():
        first, *others = sort_by_precedence(name, paths)
        if first in read:
            pipelines[name] = read[first]
        for path in others:
            errors.setdefault(path, SettingsError(_describe_used_name(name, path, first)))
    return pipelines, errors


def find_files(name: str, folder: Path) -> list[Path]:
    """The files whose pipeline is ``name``: the first is the pipeline, the others are refused."""
    return sort_by_precedence(name, [path for path in pipeline_files(folder) if read_name(path) == name])


def files_by_name(folder: Path) -> dict[str, list[Path]]:
    """The result of `find_files` for each pipeline name in the folder."""
    files: dict[str, list[Path]] = {}
    for path in pipeline_files(folder):
        files.setdefault(read_name(path), []).append(path)
    return {name: sort_by_precedence(name, paths) for name, paths in files.items()}


def sort_by_precedence(name: str, paths: list[Path]) -> list[Path]:
    """``paths`` sorted: the file that has the pipeline's name first, then from old to new. So a copy follows its
    original."""
    if len(paths) < 2:
        return paths
    return sorted(paths, key=lambda path: (path.stem != name, path.stat().st_mtime_ns, path.name))


def pipeline_files(folder: Path) -> list[Path]:
    """The YAML files of a folder, sorted by name."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline of a file; raises SettingsError with file, line, key and the nearest valid key."""
    return parse_pipeline(settings_text(path), path.name)


def parse_pipeline(text: str, file: str) -> Pipeline:
    """The pipeline of a file's text; raises SettingsError as `read_pipeline` does."""
    return parse_section(text, file, Pipeline).with_file(file)


def parse_without_functions(text: str, file: str) -> Pipeline:
    """The pipeline of a file's text without its `transforms`, where their functions are not installed.

    Its state is the same. Raises SettingsError as `read_pipeline` does.
    """
    return parse_pipeline(yaml.safe_dump({**YamlText.of(text).values, "transforms": []}), file)


def pipeline_names(folder: Path | None = None) -> set[str]:
    """The names of all pipelines of the folder, including pipelines of invalid files."""
    return {read_name(path) for path in pipeline_files(folder or pipelines_folder())}


def read_name(path: Path) -> str:
    """The pipeline name in a file; the file's name if it is not YAML or has no pipeline name.

    Other mistakes do not matter.
    """
    try:
        name = _name_in(settings_text(path))
    except SettingsError:
        name = None
    return path.stem if name is None else name


def read_notifiers(path: Path) -> list[NotifierSettings]:
    """The notifiers in a file, whatever else is wrong in it; none if they are wrong too, or if it is not YAML."""
    try:
        values = YamlText.of(settings_text(path)).values
        return [NotifierSettings.model_validate(each) for each in values["alerts"]["notify"]]
    except (SettingsError, *YAML_ERRORS):
        return []


@lru_cache(maxsize=2000)
def _name_in(text: str) -> str | None:
    """The pipeline name in a text; None if it has none. Cached: the files of all pipelines are searched for a name."""
    try:
        values = YamlText.of(text).values
    except YAML_ERRORS:
        return None
    return str(values["name"]) if isinstance(values, Mapping) and "name" in values else None


def may_have_name(name: str, path: Path) -> bool:
    """Whether a file may be the file of pipeline ``name``.

    It may be if the file or the pipeline in it has this name, if it cannot be read, or if it is invalid YAML that is
    too long or contains the name as a word.
    """
    if name in (path.stem, read_name(path)):
        return True
    try:
        text = settings_text(path)
        YamlText.of(text)
    except SettingsError:
        return True
    except YAML_ERRORS:
        return len(text) > MAX_CHARACTERS or re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None
    return False


def _describe_used_name(name: str, path: Path, first: Path) -> str:
    return (
        f"{path.name}: its pipeline name {name!r} is already that of {first.name}, which continues; this file is "
        "ignored. A name is the key of a checkpoint, so each pipeline needs its own: change `name` in this file, or "
        "remove the file."
    )
