"""A pipeline's file that is read again while a process runs, when it has changed."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipeline, pipelines_folder
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.transform_source import transforms_folder

_log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""Files are read when they are the same for so long: a part of a YAML may be valid too, without its masks."""
RETRY_SECONDS = 5.0
"""After an error the files are read this often, as its cause may be in a file that the current settings do not name."""

MOST_WAITS = 10
_Stat = tuple[int, int, int, int]
_Stats = dict[Path, _Stat | None]


class FollowedFile:
    """The YAML of a pipeline and the functions that it names. To look whether they changed costs some `stat`.

    The files are those of `load_pipeline`: another file of the folder may become that of the pipeline. Only this
    machine's clock counts, as the files may have times of a file server.
    """

    def __init__(
        self, pipeline: Pipeline, quiet_seconds: float = QUIET_SECONDS, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self._pipeline = pipeline
        """The settings in use."""
        self._quiet_seconds, self._retry_seconds = quiet_seconds, retry_seconds
        self._folder = pipelines_folder()
        self._paths = self._find_paths(pipeline)
        self._found = self._stats()
        """The files at the last look."""
        self._looked = self._found_since = time.monotonic()
        self._read: _Stats = {}
        """The files as they were when they were read."""
        self._read_again = math.inf
        """When they are read again though they are the same."""
        self._reported = ""
        """The last error that was logged, until the files are valid again."""

    def read_changed(self) -> Pipeline | None:
        """The new settings; None if they are the same, cannot be used, or may not be complete yet.

        A caller that seldom looks waits for a second after a change. Files that cannot be used are logged, once for
        each error.
        """
        if not self._are_quiet() or (self._found == self._read and time.monotonic() < self._read_again):
            return None
        try:
            new = load_pipeline(self._pipeline.name, self._folder)
        except (SettingsError, OSError) as error:  # OSError: a file was deleted while the folder was read
            if self._stats() == self._found:
                self._read, self._read_again = self._found, time.monotonic() + self._retry_seconds
                self._report(str(error))
            return None
        if self._stats() != self._found:  # it was written meanwhile
            return None
        if (paths := self._find_paths(new)) != self._paths:  # nobody has looked yet whether they are complete
            self._paths = paths
            return None
        self._read, self._read_again, self._reported = self._found, math.inf, ""
        old, self._pipeline = self._pipeline, new
        return new if changed_settings(old, new) else None

    def read_now(self) -> Pipeline | None:
        """As `read_changed`, but a file that may not be complete yet is waited for, if that takes no longer than
        MOST_WAITS times ``quiet_seconds``."""
        new = self.read_changed()
        for _ in range(MOST_WAITS):
            if new is not None or self._read == self._found:
                break
            time.sleep(self._quiet_seconds)
            new = self.read_changed()
        return new

    def _find_paths(self, pipeline: Pipeline) -> set[Path]:
        """The folder, which changes with its list of files, the YAML and the functions."""
        sources = [transform.source for transform in pipeline.transforms if not transform.source.is_supplied]
        modules = {transforms_folder() / f"{name}.py" for source in sources for name in source.modules}
        return {self._folder, self._folder / pipeline.display_file, *modules}

    def _stats(self) -> _Stats:
        return {path: _stat(path) for path in self._paths}

    def _are_quiet(self) -> bool:
        """Whether the files did not change for a second, as far as this process has looked."""
        now, before = time.monotonic(), self._looked
        self._looked = now
        if self._look(now) and now - before >= self._quiet_seconds:  # the next look may be as late
            time.sleep(self._quiet_seconds)
            self._look(time.monotonic())
        return time.monotonic() - self._found_since >= self._quiet_seconds

    def _look(self, now: float) -> bool:
        """Look at the files; return whether they changed since the last look."""
        found = self._stats()
        has_changed = found != self._found
        if has_changed:
            self._found, self._found_since = found, now
        return has_changed

    def _report(self, error: str) -> None:
        if error == self._reported:
            return
        self._reported = error
        _log.warning(
            "the changed file of pipeline %s cannot be used: %s. Until its time is over this run goes on with the "
            "settings that it has. Then no run follows, as Airflow has no DAG of an invalid or missing file. Correct "
            "the file: it takes effect at the next window, and runs follow again",
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
