"""A pipeline's file that is read again when it has changed."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from changefeed.settings import followed_file
from changefeed.settings.file import load_pipeline
from changefeed.settings.followed_file import FollowedFile, changed_settings
from changefeed.settings.pipeline import Pipeline

YAML = """\
name: shop
source: {connection: mysql_shop}
kafka: {connection: kafka_shop}
"""
TRANSFORMED = YAML + "transforms: [{function: tag, tables: shop.*}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    monkeypatch.setenv("CHANGEFEED_TRANSFORMS", str(tmp_path))
    (tmp_path / "shop.yaml").write_text(YAML)
    return tmp_path


@pytest.fixture
def file(folder: Path) -> FollowedFile:
    return follow(folder)


def follow(folder: Path) -> FollowedFile:
    return FollowedFile(load_pipeline("shop", folder), quiet_seconds=0)


def test_a_file_that_is_the_same_has_no_new_settings(folder: Path, file: FollowedFile) -> None:
    assert file.read_changed() is None
    os.utime(folder / "shop.yaml")
    assert file.read_changed() is None
    (folder / "new").write_text(YAML + "# a comment\n")
    (folder / "new").replace(folder / "shop.yaml")
    assert file.read_changed() is None


def test_a_file_that_did_not_change_is_not_read(
    folder: Path, file: FollowedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(followed_file, "load_pipeline", lambda name, _: read.append(name) or load_pipeline(name))
    for _ in range(3):
        assert file.read_changed() is None
    assert read == ["shop"], "once, as it may have changed since the process has read it"
    (folder / "shop.yaml").write_text(YAML + "tombstones: false\n")
    assert file.read_changed() is not None
    assert file.read_changed() is None
    assert read == ["shop"] * 2


def test_a_change_is_returned_once(folder: Path, file: FollowedFile) -> None:
    (folder / "shop.yaml").write_text(YAML + "tables: {include: [shop.*]}\n")
    new = file.read_changed()
    assert new is not None
    assert new.tables.include == ["shop.*"]
    assert file.read_changed() is None


def test_a_change_since_the_process_began_is_found(folder: Path) -> None:
    pipeline = load_pipeline("shop", folder)
    (folder / "shop.yaml").write_text(YAML + "tombstones: false\n")
    new = FollowedFile(pipeline, quiet_seconds=0).read_changed()
    assert new is not None
    assert not new.tombstones


def test_a_file_that_is_being_written_is_not_read_yet(folder: Path) -> None:
    file = FollowedFile(load_pipeline("shop", folder), quiet_seconds=0.5)
    (folder / "shop.yaml").write_text(YAML + "columns: {exclude: [shop.people.name]}\n")
    deadline = time.monotonic() + 0.4
    while time.monotonic() < deadline:
        (folder / "shop.yaml").write_text(YAML)  # the first part of a file that is being written
        assert file.read_changed() is None
    (folder / "shop.yaml").write_text(YAML + "tombstones: false\n")
    assert file.read_changed() is None
    time.sleep(0.6)
    assert file.read_changed() is not None


def test_the_clock_of_a_file_server_does_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was written now looks an hour old."""
    file = FollowedFile(load_pipeline("shop", folder), quiet_seconds=0.5)
    now = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: now)
    (folder / "shop.yaml").write_text(YAML)
    assert file.read_changed() is None
    (folder / "shop.yaml").write_text(YAML + "tombstones: false\n")
    assert file.read_changed() is None
    time.sleep(0.6)
    assert file.read_changed() is not None


def test_one_look_after_a_long_window_is_enough(folder: Path) -> None:
    file = FollowedFile(load_pipeline("shop", folder), quiet_seconds=0.1)
    (folder / "shop.yaml").write_text(YAML + "tombstones: false\n")
    time.sleep(0.2)
    assert file.read_changed() is not None


def read_while(file: FollowedFile, path: Path, text: str) -> Pipeline:
    """Write the first line of ``text``, then all of it, while ``file`` is read; return the new settings."""
    path.write_text(text.partition("\n")[0] + "\n")
    deadline = time.monotonic() + 1.6
    while time.monotonic() < deadline:
        assert file.read_changed() is None
        with path.open("a") as written:
            written.write("#\n")
        time.sleep(0.05)
    path.write_text(text)
    while (new := file.read_changed()) is None:
        time.sleep(0.05)
    return new


def test_a_function_that_is_new_in_the_yaml_is_not_read_while_it_is_written(folder: Path) -> None:
    (folder / "tag.py").write_text("def transform(change): return None\n")
    file = FollowedFile(load_pipeline("shop", folder), quiet_seconds=1)
    (folder / "shop.yaml").write_text(TRANSFORMED)
    text = "def transform(change): return None\nMASKED = True\n"
    assert read_while(file, folder / "tag.py", text).transforms[0].source.modules["tag"] == text


def test_another_file_that_becomes_the_pipelines_is_not_read_while_it_is_written(folder: Path) -> None:
    (folder / "shop.yaml").rename(folder / "old.yaml")
    file = FollowedFile(load_pipeline("shop", folder), quiet_seconds=1)
    first = "{name: shop, source: {connection: mysql_shop}, kafka: {connection: kafka_shop}}\n"
    assert read_while(file, folder / "shop.yaml", first[:-2] + ", tombstones: false}\n").tombstones is False


def test_a_file_that_the_invalid_yaml_names_and_that_appears_later_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    functions = folder / "functions"
    functions.mkdir()
    monkeypatch.setenv("CHANGEFEED_TRANSFORMS", str(functions))
    file = FollowedFile(load_pipeline("shop", folder), quiet_seconds=0.1, retry_seconds=0.3)
    (folder / "shop.yaml").write_text(TRANSFORMED)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        assert file.read_changed() is None
        time.sleep(0.05)
    assert len(caplog.records) == 1, "each error is logged once"
    (functions / "tag.py").write_text("def transform(change):\n    return change\n")
    deadline = time.monotonic() + 10
    while (new := file.read_changed()) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert new is not None


def test_a_file_that_is_deleted_while_it_is_read_is_an_error_that_passes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = FollowedFile(load_pipeline("shop", folder), quiet_seconds=0, retry_seconds=0)
    (folder / "shop.yaml").write_text(YAML + "tombstones: false\n")
    with monkeypatch.context() as patched:
        patched.setattr(followed_file, "load_pipeline", lambda *_: (folder / "none.yaml").stat())
        assert file.read_changed() is None
    assert "none.yaml" in caplog.text
    assert file.read_changed() is not None


@pytest.mark.parametrize("text", ["", "name: [", YAML + "tabels: 1\n", YAML.replace("shop\n", "other\n", 1)])
def test_an_invalid_file_is_logged_once_and_changes_nothing(
    folder: Path, file: FollowedFile, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    caplog.set_level(logging.WARNING)
    (folder / "shop.yaml").write_text(text)
    for _ in range(3):
        assert file.read_changed() is None
        os.utime(folder / "shop.yaml")
    (message,) = [record.getMessage() for record in caplog.records]
    assert "shop" in message
    assert "Until its time is over this run goes on with the settings that it has. Then no run follows" in message
    assert "shop.yaml" in message or "no pipeline 'shop'" in message
    (folder / "shop.yaml").write_text(YAML)
    assert file.read_changed() is None
    (folder / "shop.yaml").write_text(text)
    assert file.read_changed() is None
    assert len(caplog.records) == 2, "a valid file was in between"
    (folder / "shop.yaml").write_text(YAML + "tombstones: false\n")
    assert file.read_changed() is not None


def test_a_missing_file_is_logged_once_and_found_again(
    folder: Path, file: FollowedFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    text = (folder / "shop.yaml").read_text()
    (folder / "shop.yaml").unlink()
    for _ in range(3):
        assert file.read_changed() is None
    (message,) = [record.getMessage() for record in caplog.records]
    assert "no pipeline 'shop'" in message
    (folder / "other.yml").write_text(text + "tombstones: false\n")
    assert file.read_changed() is None, "nobody has looked yet whether it is being written"
    assert file.read_changed() is not None
    (folder / "other.yml").write_text(text)
    assert file.read_changed() is not None, "the file of another name is followed"


def test_a_changed_function_is_a_change(folder: Path) -> None:
    (folder / "tag.py").write_text("from .names import NAME\n\n\ndef transform(change):\n    return change\n")
    (folder / "names.py").write_text("NAME = 1\n")
    (folder / "shop.yaml").write_text(TRANSFORMED)
    file = follow(folder)
    assert file.read_changed() is None
    (folder / "names.py").write_text("NAME = 2\n")
    new = file.read_changed()
    assert new is not None
    assert new.transforms[0].source.modules["names"] == "NAME = 2\n"


def test_a_default_that_is_set_is_a_change(folder: Path) -> None:
    old = load_pipeline("shop", folder)
    (folder / "shop.yaml").write_text(YAML + "values: {decimal: string}\n")
    assert changed_settings(old, load_pipeline("shop", folder)) == ["values"]
