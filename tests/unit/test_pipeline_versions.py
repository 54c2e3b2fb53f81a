"""The task of a continuous run knows under which settings a window was published."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.airflow.pipeline_versions import PipelineVersions
from changefeed.settings.file import load_pipeline
from changefeed.settings.message_rules import message_rules, rules_digest
from changefeed.settings.pipeline import Pipeline

YAML = "name: shop\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\n"


def manifest(pipeline: Pipeline) -> Any:
    return SimpleNamespace(rules=rules_digest(message_rules(pipeline)))


def test_windows_are_grouped_by_their_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    file = tmp_path / "shop.yaml"
    file.write_text(YAML)
    first = load_pipeline("shop")
    versions = PipelineVersions(first)
    assert versions.read() is first
    file.write_text("name: [")
    assert versions.read() is first, "the job goes on with the settings that it has"
    file.write_text(YAML + "topics: {template: 'new.{table}'}\n")
    second = versions.read()
    file.write_text(YAML + "topics: {template: 'newer.{table}'}\n")
    unread = load_pipeline("shop")
    windows = [manifest(each) for each in (first, first, second, unread)]
    grouped = [(version.topics.template, group) for version, group in versions.group(windows)]
    assert grouped == [
        ("{database}.{table}", windows[:2]),
        ("new.{table}", windows[2:3]),
        ("new.{table}", windows[3:]),
    ]
