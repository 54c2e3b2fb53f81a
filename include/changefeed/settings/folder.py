"""Creating, changing and deleting pipelines while Airflow runs: validated text, written atomically."""

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
from changefeed.settings.file import files_of, load_pipelines, may_be_named, pipeline_files, pipeline_of_text
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.yaml_file import settings_text

MOST_FILES, MOST_BYTES = 1000, 8 << 20
"""Of a folder that is written to from here: a second of CPU a megabyte, whenever Airflow parses its DAG files."""

Rules = Callable[[Pipeline, Pipeline | None, Mapping[str, Pipeline]], None]
"""Raises SettingsError for a pipeline that may not be written: it is given that one, the one that it replaces, and all
others by name."""


class PipelineChangedError(SettingsError):
    """The file is not the one that the change was made from."""


class NoSuchPipelineError(SettingsError):
    """There is no file of that pipeline."""


@dataclass(frozen=True)
class PipelineText:
    """A pipeline's file: its text, and the tag that changes whenever the text does."""

    name: str
    text: str
    file: str

    @property
    def tag(self) -> str:
        """A digest of the text: an ETag."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def pipeline(self) -> Pipeline:
        """What the text says; raises SettingsError with its mistakes."""
        return pipeline_of_text(self.text, self.file)


@dataclass(frozen=True)
class PipelineFolder:
    """The folder of pipelines. Changes are made one at a time, also by several processes.

    Each names the rules of where it comes from. A file that cannot be read as a pipeline is not changed here, and one
    that is a link is changed where it comes from.
    """

    path: Path

    def text(self, name: str) -> PipelineText:
        """The pipeline's file as it is; raises NoSuchPipelineError."""
        return self._text(name, self._file_of(name))

    def create(self, text: str, rules: Rules) -> PipelineText:
        """Write a new file, named as its pipeline.

        Raises PipelineChangedError for a name in use, SettingsError for text that is wrong or that ``rules`` refuse.
        """
        with self._alone():
            made = PipelineText("", text, "pipeline.yaml").pipeline()
            for path in pipeline_files(self.path):
                if may_be_named(made.name, path):
                    raise PipelineChangedError(
                        f"{path.name} is pipeline {made.name!r} already, or may be, as it cannot be read: change that "
                        "one, or use a new name"
                    )
            self._check_room(text, None)
            rules(made, None, load_pipelines(self.path)[0])
            path = self.path / f"{made.name}.yaml"
            self._write(path, text)
        return PipelineText(made.name, text, path.name)

    def change(self, name: str, text: str, tag: str, rules: Rules) -> PipelineText:
        """Replace the file if it still is the one with ``tag``.

        Raises PipelineChangedError when it is another one by now, SettingsError for text that is wrong, that ``rules``
        refuse, or that renames the pipeline, whose name is the key of its checkpoint.
        """
        with self._alone():
            path, old = self._unchanged(name, tag)
            new = PipelineText(name, text, path.name).pipeline()
            if new.name != name:
                raise SettingsError(
                    f"{path.name}: the name may not change from {name!r} to {new.name!r}: it is the key of the "
                    "checkpoint. Change it in the folder of pipelines, and run `changefeed rename "
                    f"{name} {new.name}` there, which moves that; or create another pipeline, and delete this one."
                )
            self._check_room(text, path)
            others = load_pipelines(self.path)[0]
            others.pop(name, None)
            rules(new, old, others)
            self._write(path, text)
        return PipelineText(name, text, path.name)

    def delete(self, name: str, tag: str) -> None:
        """Remove the file if it still is the one with ``tag``. Checkpoint, commit log and topics stay."""
        with self._alone():
            self._unchanged(name, tag)[0].unlink()

    def _unchanged(self, name: str, tag: str) -> tuple[Path, Pipeline]:
        path = self._file_of(name)
        current = self._text(name, path)
        if current.tag != tag:
            raise PipelineChangedError(
                f"pipeline {name!r} was changed by somebody else since it was read (its tag is {current.tag}): read it "
                "again, and make the change anew"
            )
        if path.is_symlink():
            raise SettingsError(f"{path.name} is a link to {str(path.readlink())!r}: change it where it comes from")
        return path, current.pipeline()

    def _check_room(self, text: str, replaced: Path | None) -> None:
        """Raise SettingsError for one file, or one byte, too many: Airflow reads all of them in one time limit."""
        sizes = [path.stat().st_size for path in pipeline_files(self.path) if path != replaced]
        if len(sizes) >= MOST_FILES or sum(sizes) + len(text.encode()) > MOST_BYTES:
            raise SettingsError(
                f"the folder of pipelines, {self.path.name!r}, has {len(sizes)} other files with {sum(sizes):,} bytes: "
                f"with this one there would be more than {MOST_FILES} files or {MOST_BYTES:,} bytes, which Airflow's "
                "DAG processor may not read in time. Delete pipelines that are not needed; who writes to the folder "
                "itself has no such bound."
            )

    def _write(self, path: Path, text: str) -> None:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=self.path)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                self._admit(file.fileno(), path)
                os.fsync(file.fileno())
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise

    def _admit(self, file: int, path: Path) -> None:
        """Let those read a new file who may look into the folder by its group, such as Airflow's other processes, and
        nobody else: it may hold salts. A file that is replaced keeps its group, and stays closed where it was."""
        folder, before = self.path.stat(), path.stat() if path.exists() else None
        mode = 0o640 if folder.st_mode & stat.S_IXGRP else 0o600
        with suppress(PermissionError):  # a group that this process does not belong to
            os.fchown(file, -1, (before or folder).st_gid)
        os.fchmod(file, mode & (before.st_mode | 0o600) if before else mode)

    def _text(self, name: str, path: Path) -> PipelineText:
        return PipelineText(name, settings_text(path), path.name)

    def _file_of(self, name: str) -> Path:
        for path in files_of(name, self.path):
            return path
        raise NoSuchPipelineError(f"there is no pipeline {name!r} in {self.path.name!r}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)
        except OSError as error:
            raise SettingsError(
                f"the folder of pipelines, {self.path.name!r}, cannot be written here: {error.strerror}. Nothing was "
                "changed. Let the API server's user write there, or change the files where they come from."
            ) from error
