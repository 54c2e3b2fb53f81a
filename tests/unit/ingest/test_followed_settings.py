"""What a continuous run does with each changed setting of its file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.ingest.followed_settings import FollowedSettings
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.settings.followed_file import FollowedFile

YAML = """\
name: shop
source: {connection: mysql_shop}
kafka: {connection: kafka_shop}
windows: {every: 1s, run_for: 10m}
"""
OF_A_PROCESS = [
    "spark: {master: 'local[1]'}",
    "checkpoint: {store: table, connection: state}",
    "commit_log: {key: {environment: NEW}}",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    (tmp_path / "shop.yaml").write_text(YAML)
    return tmp_path


@pytest.fixture
def followed(folder: Path, caplog: pytest.LogCaptureFixture) -> FollowedSettings:
    def look_up(connection: str) -> str:
        if connection != "kafka_shop":
            raise SettingsError(f"no connection {connection!r}")
        return "kafka://127.0.0.1:9092"

    caplog.set_level(logging.INFO)
    pipeline = load_pipeline("shop", folder)
    return FollowedSettings(PipelineConnections(pipeline, look_up), FollowedFile(pipeline, quiet_seconds=0))


def change(folder: Path, *lines: str, of: str = YAML) -> None:
    (folder / "shop.yaml").write_text(of + "".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("line", OF_A_PROCESS)
def test_a_run_keeps_what_belongs_to_its_process_and_has_the_rest(
    folder: Path, followed: FollowedSettings, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    old, section = followed.connections.pipeline, line.partition(":")[0]
    change(folder, line, "tombstones: false")
    assert followed.apply()
    new = followed.connections.pipeline
    assert not new.tombstones
    assert getattr(new, section) == getattr(old, section)
    change(folder, line, "tombstones: false", "tables: {include: [shop.*]}")
    assert followed.apply()
    assert followed.connections.pipeline.tables.include == ["shop.*"]
    assert getattr(followed.connections.pipeline, section) == getattr(old, section)
    (message,) = [text for text in caplog.messages if "the next run" in text]
    assert f"`{section}`" in message
    assert "`tombstones`" not in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("windows: {every: 1s, run_for: 10m}\n", ""),
        ("mysql_shop", "mysql_other"),
        ("kafka_shop", "kafka_other"),
        ("windows", "columns: {mask: {shop.a.b: {hmac_sha256: {environment: NO_SALT}}}}\nwindows"),
    ],
)
def test_a_run_ends_for_what_it_cannot_have(
    folder: Path, followed: FollowedSettings, caplog: pytest.LogCaptureFixture, old: str, new: str
) -> None:
    before = followed.connections
    change(folder, "tombstones: false", of=YAML.replace(old, new))
    assert not followed.apply()
    assert followed.connections is before
    (message,) = caplog.messages
    assert "trigger the DAG, or begin another run, to go on at once" in message
