"""A folder of pipelines: its files, and which of them is the pipeline of a name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from changefeed.errors import SettingsError, did_you_mean
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.yaml_file import section_of, settings_text
from changefeed.settings.yaml_text import LONGEST, NO_YAML, YamlText


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
        names = sorted({name_of(path) for path in pipeline_files(folder)})
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
        files.setdefault(read[path].name if path in read else name_of(path), []).append(path)
    for name, paths in files.items():
        first, *others = by_precedence(name, paths)
        if first in read:
            pipelines[name] = read[first]
        for path in others:
            errors.setdefault(path, SettingsError(_name_in_use(name, path, first)))
    return pipelines, errors


def files_of(name: str, folder: Path) -> list[Path]:
    """The files of pipeline ``name``: the first is the pipeline, any other one is refused."""
    return by_precedence(name, [path for path in pipeline_files(folder) if name_of(path) == name])


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
    return pipeline_of_text(settings_text(path), path.name)


def pipeline_of_text(text: str, file: str) -> Pipeline:
    """A file's text; raises SettingsError as `read_pipeline` does."""
    return section_of(text, file, Pipeline).of_file(file)


def pipeline_names(folder: Path | None = None) -> set[str]:
    """The names of the folder's pipelines, of those that are wrong, too."""
    return {name_of(path) for path in pipeline_files(folder or pipelines_folder())}


def name_of(path: Path) -> str:
    """The name of a file's pipeline, which may be wrong for the rest; the file's own where it says none."""
    try:
        values = YamlText.of(settings_text(path)).values
    except (SettingsError, *NO_YAML):
        return path.stem
    return str(values["name"]) if isinstance(values, Mapping) and "name" in values else path.stem


def may_be_named(name: str, path: Path) -> bool:
    """Whether a file may be that of pipeline ``name``, also one that is no YAML at present, and has the word in it."""
    if name in (path.stem, name_of(path)):
        return True
    try:
        text = settings_text(path)
        YamlText.of(text)
    except SettingsError:
        return True
    except NO_YAML:
        return len(text) > LONGEST or re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None
    return False


def _name_in_use(name: str, path: Path, first: Path) -> str:
    return (
        f"{path.name}: its name is {name!r}, which is the pipeline of {first.name}; that one goes on, and this file is "
        "left out. A name is the key of a checkpoint, so each pipeline needs its own: give this file another name, or "
        "remove it."
    )
