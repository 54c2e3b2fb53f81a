"""The files that the demo writes: its site's file, and the pipeline with continuous runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from changefeed.settings.file import read_pipeline
from changefeed.settings.site import load_site
from devstack.home import Home
from devstack.stack import SITE_VARIABLE, Stack, write_site


def test_site_file_of_the_demo_is_valid_and_keeps_what_its_user_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "servers" / "site.yaml"
    monkeypatch.setenv(SITE_VARIABLE, str(file))
    write_site(file)
    assert [(each.source, each.kafka) for each in load_site().connections] == [("mysql_shop", "kafka_shop")]
    file.write_text("hosts: [demo.example]\n")
    write_site(file)
    assert load_site().hosts == ["demo.example"]


def test_the_continuous_demo_has_the_shop_pipeline_with_windows(tmp_path: Path) -> None:
    stack = Stack(Home(tmp_path), continuous=True)
    stack.home.servers.mkdir(parents=True)
    stack._write_pipelines()
    pipeline = read_pipeline(stack.home.servers / "pipelines" / "shop.yaml")
    assert pipeline.windows is not None
    assert (pipeline.windows.every_seconds, pipeline.schedule) == (1, "@continuous")
    Stack(Home(tmp_path), continuous=False)._write_pipelines()
    assert not (stack.home.servers / "pipelines").exists()
