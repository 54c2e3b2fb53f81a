"""A job gets its plan, its pipeline and its secrets in one private file, which it deletes."""

from __future__ import annotations

import json
import os
import runpy
import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from changefeed import __version__
from changefeed.airflow.ingest_operator import jobs_folder
from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipeline
from changefeed.settings.followed_file import FollowedFile
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import load_site
from changefeed.spark.job_file import JOB_FILE, JobFile, discard_job_file, read_job, read_job_file
from changefeed.spark.target import rows_of_tasks

YAML = """\
name: shop
source: {connection: mysql_shop}
kafka: {connection: kafka_shop}
transforms: [{function: tag, tables: shop.*}]
"""
SITE = "{archives: [/], passwords: [{connection: mysql_shop, command: [token]}, {connection: other, command: [t]}]}"
VARIABLES = {"AIRFLOW_CONN_MYSQL_SHOP": "mysql://u:secret@h"}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHANGEFEED_PIPELINES", "CHANGEFEED_TRANSFORMS", "CHANGEFEED_SITE", *VARIABLES):
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline of an Airflow worker, with a function that imports another module."""
    worker = tmp_path / "worker"
    worker.mkdir()
    (worker / "shop.yaml").write_text(YAML)
    (worker / "site.yaml").write_text(SITE)
    (worker / "tag.py").write_text("import helpers\n\n\ndef transform(change):\n    return change\n")
    (worker / "helpers.py").write_text("TAG = 1\n")
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(worker))
    monkeypatch.setenv("CHANGEFEED_TRANSFORMS", str(worker))
    monkeypatch.setenv("CHANGEFEED_SITE", str(worker / "site.yaml"))
    return load_pipeline("shop")


def submit(pipeline: Pipeline, folder: Path) -> Path:
    folder.mkdir()
    return JobFile.of({"windows": []}, pipeline, VARIABLES).write(folder)


def test_driver_without_the_workers_files_and_variables_has_the_same_pipeline(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = submit(pipeline, tmp_path / "driver")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (tmp_path / "worker").rename(tmp_path / "elsewhere")
    for name in ("CHANGEFEED_PIPELINES", "CHANGEFEED_TRANSFORMS", "CHANGEFEED_SITE"):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path / "driver")
    assert read_job_file(JOB_FILE) == {"windows": []}
    monkeypatch.chdir(tmp_path)
    assert load_pipeline("shop") == pipeline
    assert load_pipeline("shop").transforms[0].source == pipeline.transforms[0].source
    assert os.environ.items() >= VARIABLES.items()
    source = load_site().password_source("mysql_shop")
    assert source is not None
    assert source.command == ("token",)
    assert load_site().password_source("other") is None, "no connection of this job"
    assert load_site().archives == []


def test_driver_deletes_the_file_and_the_copy_that_it_links_to(pipeline: Pipeline, tmp_path: Path) -> None:
    """As in a container of YARN, whose files are links into the user's cache."""
    cached = submit(pipeline, tmp_path / "cache")
    (tmp_path / "container").mkdir()
    link = tmp_path / "container" / JOB_FILE
    link.symlink_to(cached)
    read_job_file(str(link))
    assert not cached.exists()
    assert not link.is_symlink()
    written = [path for path in (tmp_path / "container").rglob("*") if path.is_file()]
    assert written
    assert not any("secret" in path.read_text() for path in written)
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


def test_executor_deletes_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    discard_job_file()
    JobFile(None, {}, VARIABLES).write(tmp_path)
    discard_job_file()
    assert not list(tmp_path.iterdir())


def test_executor_without_a_warm_up_deletes_its_copy_before_its_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    JobFile(None, {}, VARIABLES).write(tmp_path)
    frame = SimpleNamespace(mapInArrow=lambda of_task, _: of_task)
    of_task: Any = rows_of_tasks(cast(Any, SimpleNamespace(range=lambda *_: frame)), [0], lambda _: [], "id long")
    assert list(of_task([pa.record_batch({"id": [0]})])) == []
    assert not list(tmp_path.iterdir())


def test_file_of_another_version_is_refused_and_one_without_files_changes_nothing(tmp_path: Path) -> None:
    JobFile({}, version="0.0.1").write(tmp_path)
    values = json.loads((tmp_path / JOB_FILE).read_text())
    (tmp_path / JOB_FILE).write_text(json.dumps({**values, "of_another_version": 1}))
    with pytest.raises(SettingsError, match=rf"expected changefeed 0\.0\.1.*found {__version__}"):
        read_job_file(str(tmp_path / JOB_FILE))
    assert not (tmp_path / JOB_FILE).exists(), "its passwords do not stay, whoever wrote it"
    before = dict(os.environ)
    (tmp_path / "plan.json").write_text(json.dumps({"plan": [1]}))
    assert read_job_file(str(tmp_path / "plan.json")) == [1]
    assert dict(os.environ) == before


def test_driver_on_the_tasks_machine_follows_the_tasks_files(pipeline: Pipeline, tmp_path: Path) -> None:
    job = read_job(str(submit(pipeline, tmp_path / "driver")))
    assert job.follow_folders(pipeline)
    file = FollowedFile(load_pipeline("shop"), quiet_seconds=0)
    assert file.read_changed() is None
    worker = tmp_path / "worker"
    (worker / "shop.yaml").write_text(YAML + "tombstones: false\n")
    new = file.read_changed()
    assert new is not None
    assert not new.tombstones
    (worker / "tag.py").write_text("def transform(change):\n    return None\n")
    new = file.read_changed()
    assert new is not None
    assert "return None" in new.transforms[0].source.modules["tag"]


def test_driver_elsewhere_follows_no_files(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = read_job(str(submit(pipeline, tmp_path / "driver")))
    shipped = os.environ["CHANGEFEED_PIPELINES"]
    (tmp_path / "worker").rename(tmp_path / "elsewhere")
    assert not job.follow_folders(pipeline), "the folder is not there"
    (tmp_path / "elsewhere").rename(tmp_path / "worker")
    monkeypatch.setattr(socket, "gethostname", lambda: "another-host")
    assert not job.follow_folders(pipeline), "a folder of the same name is another one"
    assert os.environ["CHANGEFEED_PIPELINES"] == shipped


def test_secrets_are_in_no_repr() -> None:
    assert "secret" not in repr(JobFile(None, {"shop.yaml": "secret"}, VARIABLES))


@pytest.mark.parametrize("job", sorted(jobs_folder().glob("*.py")), ids=lambda path: path.stem)
def test_each_job_takes_its_file_first(job: Path) -> None:
    values = runpy.run_path(str(job))
    assert values["ARGUMENTS"]._get_positional_actions()[0].dest == "job"
    assert {"read_job_file", "read_job"} & values.keys()
