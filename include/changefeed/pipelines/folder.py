"""Creating, changing and deleting pipelines while Airflow runs: validated text, written atomically."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from changefeed.errors import SettingsError
from changefeed.pipelines.file import files_of, pipeline_files, read_pipeline
from changefeed.pipelines.pipeline import Pipeline

_SPARK_CONF = (
    "spark.executor.memory",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.driver.memory",
    "spark.cores.max",
    "spark.task.",
    "spark.memory.",
    "spark.dynamicAllocation.",
    "spark.sql.shuffle.",
    "spark.network.timeout",
)
_NOTIFIERS = ("airflow.providers.",)


class PipelineChangedError(SettingsError):
    """The file is not the one that the change was made from."""


class NoSuchPipelineError(SettingsError):
    """There is no file of that pipeline."""


@dataclass(frozen=True)
class PipelineText:
    """A pipeline's file: its text, and the tag that changes whenever the text does."""

    name: str
    text: str

    @property
    def tag(self) -> str:
        """A digest of the text: an ETag."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class PipelineFolder:
    """The folder of pipelines. Changes are made one at a time, also by several processes.

    What comes through here may come from a person who may not run code on this machine. So it must not name any:
    `spark.conf` takes sizes only, and notifiers are those of Airflow's providers.
    """

    path: Path

    def text(self, name: str) -> PipelineText:
        """The pipeline's file as it is; raises NoSuchPipelineError."""
        return PipelineText(name, self._file_of(name).read_text())

    def create(self, text: str) -> PipelineText:
        """Write a new file, named as its pipeline. Raises SettingsError for text that is wrong or a name in use."""
        with self._alone():
            pipeline = self._checked(text)
            if any(path.stem == pipeline.name for path in pipeline_files(self.path)) or self._find(pipeline.name):
                raise PipelineChangedError(
                    f"there is a pipeline {pipeline.name!r} already: change it, or use a new name"
                )
            self._write(self.path / f"{pipeline.name}.yaml", text)
        return PipelineText(pipeline.name, text)

    def change(self, name: str, text: str, tag: str) -> PipelineText:
        """Replace the file if it still is the one with ``tag``.

        Raises PipelineChangedError when it is another one by now, SettingsError for text that is wrong or renames
        the pipeline, whose name is the key of its checkpoint.
        """
        with self._alone():
            path = self._unchanged(name, tag)
            pipeline = self._checked(text, path.name)
            if pipeline.name != name:
                raise SettingsError(
                    f"{path.name}: the name may not change from {name!r} to {pipeline.name!r}: it is the key of the "
                    "checkpoint. Create another pipeline, and delete this one."
                )
            self._write(path, text)
        return PipelineText(name, text)

    def delete(self, name: str, tag: str) -> None:
        """Remove the file if it still is the one with ``tag``. Checkpoint, commit log and topics stay."""
        with self._alone():
            self._unchanged(name, tag).unlink()

    def _unchanged(self, name: str, tag: str) -> Path:
        path = self._file_of(name)
        current = PipelineText(name, path.read_text()).tag
        if current != tag:
            raise PipelineChangedError(
                f"pipeline {name!r} was changed by somebody else since it was read (its tag is {current}): read it "
                "again, and make the change anew"
            )
        return path

    def _checked(self, text: str, file_name: str = "pipeline.yaml") -> Pipeline:
        scratch = Path(tempfile.mkdtemp(prefix="changefeed-pipeline."))
        try:
            (scratch / file_name).write_text(text)
            pipeline = read_pipeline(scratch / file_name)
        finally:
            shutil.rmtree(scratch)
        refused = [key for key in pipeline.spark.conf if not key.startswith(_SPARK_CONF)]
        refused += [alert.notifier for alert in pipeline.alerts.notify if not alert.notifier.startswith(_NOTIFIERS)]
        if refused:
            raise SettingsError(
                f"{refused[0]!r} may only be set in the file itself, not from here: it can name code to run. Allowed "
                f"from here: {', '.join(_SPARK_CONF)}; notifiers of {', '.join(_NOTIFIERS)}"
            )
        return pipeline

    def _write(self, path: Path, text: str) -> None:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=self.path)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(partial).chmod(0o644)
            Path(partial).replace(path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise

    def _file_of(self, name: str) -> Path:
        path = self._find(name)
        if path is None:
            raise NoSuchPipelineError(f"there is no pipeline {name!r} in {self.path.name!r}")
        return path

    def _find(self, name: str) -> Path | None:
        return next(iter(files_of(name, self.path)), None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.path / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
