"""A pipeline's file that is read again while a process runs, when it has changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

from changefeed.errors import SettingsError
from changefeed.settings.file import find_files, load_pipeline, pipelines_folder
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.transform_source import transforms_folder

_log = logging.getLogger(__name__)

SETTLE_SECONDS = 1.0
"""A file is read this long after it was last written: a part of it may be valid YAML too, without its masks."""

_Stat = tuple[int, int, int, int]


class FollowedFile:
    """The YAML of a pipeline and the functions that it names. To look whether they changed costs some `stat`.

    The files are those of `load_pipeline`: another file of the folder may become that of the pipeline.
    """

    def __init__(self, pipeline: Pipeline, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._pipeline = pipeline
        self._settle_seconds = settle_seconds
        self._folder = pipelines_folder()
        self._path = self._folder / pipeline.display_file
        self._read: list[_Stat | None] = []
        """The files as they were when they were read."""
        self._unsettled: list[_Stat | None] = []
        self._unsettled_since = 0.0
        self._reported = ""
        """The last error that was logged, until the files are valid again."""

    def read_changed(self) -> Pipeline | None:
        """The new settings; None if they are the same, or cannot be used, or were written less than a second ago.

        Files that cannot be used are logged, once for each error.
        """
        paths = list(self._paths())
        found = list(map(_stat, paths))
        if found == self._read or not self._is_settled(found):
            return None
        try:
            (self._path, *_) = find_files(self._pipeline.name, self._folder) or (self._path,)
            new = load_pipeline(self._pipeline.name, self._folder)
        except SettingsError as error:
            if found == list(map(_stat, paths)):
                self._read = found
                self._report(str(error))
            return None
        if found != list(map(_stat, paths)):  # it was written meanwhile
            return None
        self._reported = ""
        changed = changed_settings(self._pipeline, new)
        self._pipeline = new
        if list(self._paths()) == paths:  # else the next call reads the files that the new settings name
            self._read = found
        return new if changed else None

    def _paths(self) -> Iterator[Path]:
        yield self._folder  # changes with its list of files
        yield self._path
        for transform in self._pipeline.transforms:
            if not transform.source.is_supplied:
                yield from (transforms_folder() / f"{name}.py" for name in sorted(transform.source.modules))

    def _is_settled(self, found: list[_Stat | None]) -> bool:
        """Whether nobody has written for a second, by the files' clock or, as that may be another one, by ours."""
        if found != self._unsettled:
            self._unsettled, self._unsettled_since = found, time.monotonic()
        folder, *files = found
        written = max((each[0] for each in ([folder] if None in files else files) if each), default=0) / 1e9
        waited = time.monotonic() - self._unsettled_since
        return time.time() - written >= self._settle_seconds or waited >= self._settle_seconds

    def _report(self, error: str) -> None:
        if error == self._reported:
            return
        self._reported = error
        _log.warning(
            "the changed file of pipeline %s cannot be used: %s. This run goes on with the settings that it has; the "
            "next one would fail. Correct the file: then it takes effect at the next window",
            self._pipeline.name,
            error,
        )


def changed_settings(old: Pipeline, new: Pipeline) -> list[str]:
    """The names of the settings that differ, also in whether they are set: some defaults depend on others."""
    before, after = (pipeline.model_dump(exclude_unset=True) for pipeline in (old, new))
    return [
        name
        for name in Pipeline.model_fields
        if getattr(old, name) != getattr(new, name) or before.get(name) != after.get(name)
    ]


def _stat(path: Path) -> _Stat | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino
