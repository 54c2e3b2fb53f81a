"""The one file that a job gets: its plan, the files of its pipeline, and variables with connections and secrets.

The driver may run on another machine than the task that starts it, with none of the task's files and variables. Nothing
of this file is in an environment that other processes see, in Spark's settings, or on a command line. Spark copies the
file to a driver elsewhere (`--files`), and there also to the executors, which delete their copy (`discard_job_file`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from changefeed import __version__
from changefeed.errors import SettingsError
from changefeed.model.connection import variable_of
from changefeed.settings.file import find_files, pipelines_folder
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import SITE_VARIABLE, load_site
from changefeed.settings.transform_source import transforms_folder
from changefeed.settings.yaml_file import settings_text

JOB_FILE = "changefeed-job.json"

STOP_FILE = "stop"
"""The file beside the job's file that asks a continuous run to end after its window. A driver elsewhere has none."""

POD_SECRET_FOLDER = "/var/run/secrets/changefeed"
"""Where the driver's pod on Kubernetes has the file: in a volume that nobody can write to."""

IMAGE_JOBS_FOLDER = "/opt/changefeed/jobs"
"""The folder of jobs/ in the image of a pod."""

_PIPELINES, _TRANSFORMS, _SITE = "pipelines", "transforms", "site.yaml"
_PIPELINES_VARIABLE, _TRANSFORMS_VARIABLE = "CHANGEFEED_PIPELINES", "CHANGEFEED_TRANSFORMS"


@dataclass(frozen=True)
class JobFile:
    """What a job gets. Without ``files``, as for a job that is submitted by hand, those of its machine are used."""

    plan: Any
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Texts of the pipeline's YAML, its functions and the site's settings, by path."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables, with connections and secrets."""
    version: str = __version__
    host: str = ""
    """The machine of the task that wrote the file; its folders are in ``folders``."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """The folders of pipelines and functions from which ``files`` were read, as environment variables."""

    @classmethod
    def of(cls, plan: Any, pipeline: Pipeline, variables: Mapping[str, str]) -> JobFile:
        """The file of a job of ``pipeline`` with the files of this machine: its YAML, the functions that it calls, and
        what the site's file says about the passwords of its connections. Raises SettingsError if one cannot be read."""
        (path, *_) = find_files(pipeline.name, pipelines_folder())
        modules = [each.source.modules for each in pipeline.transforms if not each.source.is_supplied]
        passwords = [each for each in load_site().passwords if variable_of(each.connection) in variables]
        files = {
            f"{_PIPELINES}/{path.name}": settings_text(path),
            **{f"{_TRANSFORMS}/{name}.py": text for texts in modules for name, text in texts.items()},
            _SITE: json.dumps({"passwords": [each.model_dump() for each in passwords]}),
        }
        folders = {_PIPELINES_VARIABLE: str(path.parent.absolute())}
        if transforms_folder().is_dir():
            folders[_TRANSFORMS_VARIABLE] = str(transforms_folder().absolute())
        return cls(plan, files, variables, host=socket.gethostname(), folders=folders)

    def write(self, folder: Path) -> Path:
        """Write the file into ``folder``, readable for its owner only."""
        path = folder / JOB_FILE
        path.touch(0o600)
        path.write_text(json.dumps(asdict(self)))
        return path

    def follow_folders(self, pipeline: Pipeline) -> bool:
        """From now on, read the files of ``pipeline`` where the task does, so that changes are found; return False on a
        driver elsewhere, whose own files do not change."""
        folder = self.folders.get(_PIPELINES_VARIABLE)
        if self.host != socket.gethostname() or folder is None or not find_files(pipeline.name, Path(folder)):
            return False
        os.environ.update(self.folders)
        return True


def read_job_file(file: str) -> Any:
    """The plan in the job's file; see `read_job`."""
    return read_job(file).plan


def read_job(file: str) -> JobFile:
    """The job's ``file``, which is deleted.

    From now on, this process has the file's variables, and reads the pipeline's files from the folder of ``file``, or
    from a private one if that cannot be written to, as in a pod.
    Raises SettingsError if another version of changefeed wrote it.
    """
    path = Path(file)
    values = json.loads(path.read_text())
    _discard(path)
    if (version := values.get("version", __version__)) != __version__:  # before its other values, which may differ
        raise SettingsError(
            f"expected changefeed {version}, which submitted this job, on the driver's machine, found "
            f"{__version__}. Nothing was published. Install the same version there"
        )
    job = JobFile(**values)
    folder = (path.parent if os.access(path.parent, os.W_OK) else Path(mkdtemp(prefix="changefeed-job-"))).resolve()
    for name, text in job.files.items():
        target = folder / name
        target.parent.mkdir(mode=0o700, exist_ok=True)
        target.touch(0o600)
        target.write_text(text)
    os.environ.update(job.variables)
    if job.files:
        os.environ[_PIPELINES_VARIABLE] = str(folder / _PIPELINES)
        os.environ[_TRANSFORMS_VARIABLE] = str(folder / _TRANSFORMS)
        os.environ[SITE_VARIABLE] = str(folder / _SITE)
    return job


def discard_job_file() -> None:
    """Delete the copy of the file that Spark gives to each executor, which has no use for it."""
    _discard(Path(JOB_FILE))


def _discard(path: Path) -> None:
    """Delete ``path`` and the file that it links to, as YARN keeps that for later applications of the user."""
    for each in (path.resolve(), path):
        with suppress(OSError):
            each.unlink()
