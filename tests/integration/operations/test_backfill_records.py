"""The records of a finished backfill that stay in the commit log, and for how long."""

from __future__ import annotations

import pytest

from changefeed.errors import AccountingError
from changefeed.kafka.commit_log.records import AttemptRecord, BegunRecord
from changefeed.kafka.topics import commit_log_settings, ensure_topics
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.run_identity import backfill_identity
from changefeed.model.window import Window
from changefeed.operations import backfill
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings
from devstack.kafka import KafkaBroker


@pytest.fixture
def connections(kafka_broker: KafkaBroker, unique_name: str) -> PipelineConnections:
    source, kafka = SourceSettings(connection="mysql"), KafkaSettings(connection="kafka")
    connections = PipelineConnections(
        Pipeline(name=unique_name, source=source, kafka=kafka), lambda _: f"kafka://{kafka_broker.bootstrap}"
    )
    ensure_topics(connections.kafka, {connections.commit_log().topic: commit_log_settings(1)})
    return connections


def publish_backfill(connections: PipelineConnections, run: str) -> tuple[Window, str]:
    """Publish and seal a backfill; return its window and identity."""
    name, identity = connections.pipeline.name, backfill_identity(connections.pipeline.name, run)
    at = BinlogCoordinates("bin.000001", 4)
    window = Window(name, 1, "3e11fa47-71ca-11e1-9e33-c80aa9429562", at, BinlogCoordinates("bin.000002", 4), "", "", 0)
    with connections.lease(identity) as lease:
        lease.log().keep(AttemptRecord(run), BegunRecord(window))
        lease.log().seal(Manifest(window, 100, 1, 1, {}, 0, ()))
    return window, identity


def test_the_latest_backfills_can_be_tried_again_and_older_ones_leave_nothing(
    connections: PipelineConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "KEPT_BACKFILLS", 2)
    with connections.lease() as lease:
        lease.log().keep(AttemptRecord("the pipeline's own records stay"))
    runs = [publish_backfill(connections, f"run{number}") for number in range(4)]
    window, latest = runs[-1]
    for _ in range(2):  # a retry of the task `finish`
        assert backfill.finish_backfill(connections, window, latest).window == window
    kept = connections.commit_log().identities()
    assert sorted(kept) == sorted([connections.pipeline.name, runs[2][1], latest])
    assert backfill.sealed_backfill(connections, *runs[2]) is not None
    with pytest.raises(AccountingError, match="not sealed"):
        backfill.finish_backfill(connections, *runs[0])
