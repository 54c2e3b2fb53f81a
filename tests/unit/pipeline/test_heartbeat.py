"""Heartbeats: their records, and what happens if one cannot be written."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.airflow import tasks
from changefeed.errors import TopicError
from changefeed.ingest import commit
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline import heartbeat
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
from changefeed.pipeline.plan import Plan
from changefeed.settings.file import parse_pipeline

AT = BinlogCoordinates("bin.000012", 4077)
WINDOW = Window("shop", 13, "5cd0", AT, AT, "5cd0:1-9", "5cd0:1-9", 1_764_190_123_456, plan_seconds=0.25)
MANIFEST = Manifest(replace(WINDOW, start=BinlogCoordinates("bin.000012", 4)), 4073, 1, 1, {}, 0, (), gtids="5cd0:1-9")
YAML = "name: shop\nsource: {connection: m}\nkafka: {connection: k}\nheartbeat: true\n"


def record_of(beat: Heartbeat) -> dict[str, Any]:
    key, value = beat.to_record()
    assert json.loads(key) == {"pipeline": "shop"}
    return dict(json.loads(value))


def test_idle_run_names_the_time_at_which_it_read_the_source() -> None:
    plan = Plan(WINDOW, Checkpoint("shop", 12, "5cd0", AT, "5cd0:1-9", 1), 0, 0)
    record = record_of(Heartbeat.of_idle(plan))
    assert record.pop("written_ms") > record["read_ms"]
    assert record == {
        "pipeline": "shop", "state": "idle", "window": 12, "server_uuid": "5cd0", "file": "bin.000012",
        "position": 4077, "gtids": "5cd0:1-9", "read_ms": 1_764_190_123_205,
    }  # fmt: skip


def test_committed_window_does_not_claim_that_nothing_is_new() -> None:
    record = record_of(Heartbeat.of_committed(MANIFEST))
    assert (record["state"], record["window"], record["read_ms"]) == ("committed", 13, None)
    assert (record["file"], record["position"], record["gtids"]) == ("bin.000012", 4077, "5cd0:1-9")


def test_heartbeat_of_a_pipeline_that_parks_names_the_tables_whose_changes_are_missing() -> None:
    beat = Heartbeat.of_committed(MANIFEST)
    assert "parked" not in json.loads(beat.to_record()[1])
    assert json.loads(beat.to_record([])[1])["parked"] == []
    assert json.loads(beat.to_record(["shop.orders"])[1])["parked"] == ["shop.orders"]


def test_pipeline_without_heartbeat_opens_no_connection() -> None:
    pipeline = parse_pipeline(YAML.replace("true", "false"), "shop.yaml")

    def refuse(connection: str) -> str:
        raise AssertionError(connection)

    write_heartbeat(PipelineConnections(pipeline, refuse), Heartbeat.of_committed(MANIFEST))


def test_commit_succeeds_with_an_alert_if_its_heartbeat_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = parse_pipeline(YAML, "shop.yaml")
    alerts: list[tuple[str, str]] = []

    def refuse(*_: Any, **__: Any) -> None:
        raise TopicError("topic 'changefeed.shop.heartbeat' is missing")

    monkeypatch.setattr(heartbeat, "ensure_topics", refuse)
    monkeypatch.setattr(commit, "commit_windows", lambda *_: [MANIFEST])
    monkeypatch.setattr(tasks, "emit_events", lambda *_: [])
    monkeypatch.setattr(tasks, "notify", lambda _, kind, text: alerts.append((kind, text)))
    connections: Any = SimpleNamespace(pipeline=pipeline, kafka=None)
    manifests = tasks.commit_and_report(pipeline, connections, None, None)  # type: ignore[arg-type]
    assert manifests == [MANIFEST]
    assert alerts == [("no heartbeat", "pipeline 'shop': topic 'changefeed.shop.heartbeat' is missing")]
