"""The warning about table patterns of a saved pipeline that match no table."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Response

from changefeed.errors import SourceUnavailableError
from changefeed.settings.pipeline_settings import TableSettings
from changefeed_web import pipelines, position, slots
from changefeed_web.bodies import PipelineBody

YAML = 'name: shop\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\ntables: {include: ["shop.*"]}\n'


@pytest.mark.parametrize(
    ("include", "captured", "words"),
    [
        (["shop.*"], ["shop.orders"], []),
        (["shop.*", r"/sales\.o\d/"], ["shop.orders", "sales.o1"], []),
        (["shop.*"], [], ["No table of the source matches shop.*.", "publishes nothing until"]),
        (["shop.*", "shpo.*"], ["shop.orders"], ["No table of the source matches shpo.*.", "nothing for it until"]),
    ],
)
def test_patterns_without_a_table_are_named(include: list[str], captured: list[str], words: list[str]) -> None:
    warnings = pipelines.describe_unmatched(TableSettings(include=include), captured)
    assert len(warnings) == bool(words)
    assert [word for word in words if word not in warnings[0]] == []


def test_pipeline_is_saved_and_its_source_read_after_the_slot_of_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that cannot be read is a warning; meanwhile others write."""
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    monkeypatch.setattr(pipelines, "require_permission", lambda *_, **__: None)
    monkeypatch.setattr(pipelines, "has_permission", lambda *_: True)
    monkeypatch.setattr(pipelines, "write_audit_log", lambda *_, **__: None)
    monkeypatch.setattr(pipelines, "rules_of", lambda _: lambda *_: None)
    monkeypatch.setattr(slots, "_writes", slots.Slots(1, 1))
    held: list[int] = []

    def read(_: Any) -> dict[str, str]:
        held.append(slots._writes._held.total())
        raise SourceUnavailableError("db1:3306 cannot be reached")

    monkeypatch.setattr(position, "topics", read)
    answer = asyncio.run(pipelines.create_pipeline(PipelineBody(yaml=YAML), SimpleNamespace(), Response()))
    assert (tmp_path / "shop.yaml").read_text() == YAML
    (warning,) = answer["warnings"]
    assert "was not checked: db1:3306 cannot be reached" in warning
    assert held == [0]
