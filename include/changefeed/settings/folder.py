"""Creates, changes and deletes pipelines while Airflow runs: text is validated, and written atomically."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from changefeed.errors import SettingsError
from changefeed.settings.file import find_files, load_pipelines, may_have_name, parse_pipeline, pipeline_files
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.yaml_file import settings_text

MAX_FILES, MAX_BYTES = 1000, 8 << 20
"""Limits of a folder that is written over REST. When Airflow parses DAG files, each megabyte takes a second of
CPU."""

Rules = Callable[[Pipeline, Pipeline | None, Mapping[str, Pipeline]], None]
"""A function that raises SettingsError if a pipeline may not be written. Its arguments are this pipeline, the pipeline
that it replaces, and all other pipelines by name."""


class PipelineChangedError(SettingsError):
    """The file changed since the caller read it."""


class NoSuchPipelineError(SettingsError):
    """The pipeline has no file."""


@dataclass(frozen=True)
class PipelineText:
    """The text of a pipeline's file, with a tag that changes with the text."""

    name: str
    text: str
    file: str

    @property
    def tag(self) -> str:
        """A digest of the text: an ETag."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def pipeline(self) -> Pipeline:
        """The pipeline; raises SettingsError with the mistakes in the text."""
        return parse_pipeline(self.text, self.file)


@dataclass(frozen=True)
class PipelineFolder:
    """The folder of pipelines. A lock file serializes the changes of all processes.

    A file that is not a valid pipeline, or is a symbolic link, is not changed.
    """

    path: Path

    def text(self, name: str) -> PipelineText:
        """The pipeline's file; raises NoSuchPipelineError."""
        return self._text(name, self._file_of(name))

    def create(self, text: str, rules: Rules) -> PipelineText:
        """Write a new file, named as its pipeline.

        Raises PipelineChangedError if the name is in use, and SettingsError if the text is wrong or ``rules`` refuse
        it.
        """
        with self._lock():
            created = self.check_create(text, rules)
            path = self.path / f"{created.name}.yaml"
            self._write(path, text)
        return PipelineText(created.name, text, path.name)

    def check_create(self, text: str, rules: Rules) -> Pipeline:
        """The pipeline that `create` would write. Raises what `create` raises, and writes nothing."""
        created = PipelineText("", text, "pipeline.yaml").pipeline()
        for path in pipeline_files(self.path):
            if may_have_name(created.name, path):
                raise PipelineChangedError(
                    f"{path.name} already has pipeline {created.name!r}, or may have it, as it cannot be read. "
                    "Change that file, or use another name"
                )
        self._check_size(text, None)
        rules(created, None, load_pipelines(self.path)[0])
        return created

    def change(self, name: str, text: str, tag: str, rules: Rules) -> PipelineText:
        """Replace the file if it still has the tag ``tag``.

        Raises PipelineChangedError if the file changed, and SettingsError if the text is wrong, is refused by
        ``rules``, or renames the pipeline, whose name is the key of its checkpoint.
        """
        with self._lock():
            path, old = self._find_unchanged(name, tag)
            self._check_change(path, old, text, rules)
            self._write(path, text)
        return PipelineText(name, text, path.name)

    def check_change(self, name: str, text: str, rules: Rules) -> Pipeline:
        """The pipeline that `change` would write to the current file. Raises what `change` raises, and writes
        nothing."""
        path = self._file_of(name)
        return self._check_change(path, _changeable(path, self._text(name, path)), text, rules)

    def _check_change(self, path: Path, old: Pipeline, text: str, rules: Rules) -> Pipeline:
        name = old.name
        new = PipelineText(name, text, path.name).pipeline()
        if new.name != name:
            raise SettingsError(
                f"{path.name}: the name may not change from {name!r} to {new.name!r}, because it is the key of the "
                f"checkpoint. Change it in the folder of pipelines and run `changefeed rename {name} {new.name}` "
                "there, which moves the checkpoint; or create another pipeline and delete this one."
            )
        self._check_size(text, path)
        others = load_pipelines(self.path)[0]
        others.pop(name, None)
        rules(new, old, others)
        return new

    def delete(self, name: str, tag: str) -> None:
        """Remove the file if it still has the tag ``tag``. Checkpoint, commit log and topics stay."""
        with self._lock():
            self._find_unchanged(name, tag)[0].unlink()

    def _find_unchanged(self, name: str, tag: str) -> tuple[Path, Pipeline]:
        path = self._file_of(name)
        current = self._text(name, path)
        if current.tag != tag:
            raise PipelineChangedError(
                f"pipeline {name!r} was changed by somebody else since it was read (its tag is {current.tag}). Read it "
                "again, and repeat the change"
            )
        return path, _changeable(path, current)

    def _check_size(self, text: str, replaced: Path | None) -> None:
        """Raise SettingsError if the folder would have too many files or bytes: Airflow parses all of them within one
        time limit."""
        sizes = [path.stat().st_size for path in pipeline_files(self.path) if path != replaced]
        if len(sizes) >= MAX_FILES or sum(sizes) + len(text.encode()) > MAX_BYTES:
            raise SettingsError(
                f"the folder of pipelines, {self.path.name!r}, has {len(sizes)} other files with {sum(sizes):,} bytes. "
                f"With this file it would have more than {MAX_FILES} files or {MAX_BYTES:,} bytes, which Airflow's DAG "
                "processor may not read in time. Delete pipelines that are not needed, or write to the folder itself, "
                "which has no such limit."
            )

    def _write(self, path: Path, text: str) -> None:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=self.path)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                self._set_permissions(file.fileno(), path)
                os.fsync(file.fileno())
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise

    def _set_permissions(self, file: int, path: Path) -> None:
        """Set group and mode of a new file.

        The file may hold salts, so only its owner may read it, and its group if the folder's group may enter the folder
        (for Airflow's other processes). A replacement keeps the group of the old file, and adds no readers.
        """
        folder, before = self.path.stat(), path.stat() if path.exists() else None
        mode = 0o640 if folder.st_mode & stat.S_IXGRP else 0o600
        with suppress(PermissionError):  # this process is not a member of the group
            os.fchown(file, -1, (before or folder).st_gid)
        os.fchmod(file, mode & (before.st_mode | 0o600) if before else mode)

    def _text(self, name: str, path: Path) -> PipelineText:
        return PipelineText(name, settings_text(path), path.name)

    def _file_of(self, name: str) -> Path:
        for path in find_files(name, self.path):
            return path
        raise NoSuchPipelineError(f"there is no pipeline {name!r} in {self.path.name!r}")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)
        except OSError as error:
            raise SettingsError(
                f"the folder of pipelines, {self.path.name!r}, cannot be written: {error.strerror}. Nothing was "
                "changed. Allow the API server's user to write there, or change the files at their source."
            ) from error


def _changeable(path: Path, current: PipelineText) -> Pipeline:
    """The pipeline of a file that may be changed; raises SettingsError for a link and an invalid file."""
    if path.is_symlink():
        raise SettingsError(f"{path.name} is a link to {str(path.readlink())!r}: change that file")
    return current.pipeline()
