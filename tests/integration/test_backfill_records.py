"""What a backfill leaves in the commit log when it is finished, and for how long."""

from __future__ import annotations

import pytest

from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import AccountingError
from changefeed.kafka.log_record import AttemptRecord, BegunRecord
from changefeed.kafka.topics import commit_log_settings, ensure_topics
from changefeed.manifest import Manifest
from changefeed.pipelines.pipeline import KafkaSettings, Pipeline, SourceSettings
from changefeed.upkeep import backfill
from changefeed.upkeep.backfill_request import backfill_identity
from changefeed.window import Window
from devstack.kafka import KafkaBroker


@pytest.fixture
def endpoints(kafka_broker: KafkaBroker, unique_name: str) -> Endpoints:
    source, kafka = SourceSettings(connection="mysql"), KafkaSettings(connection="kafka")
    endpoints = Endpoints(
        Pipeline(name=unique_name, source=source, kafka=kafka), lambda _: f"kafka://{kafka_broker.bootstrap}"
    )
    ensure_topics(endpoints.kafka, {endpoints.commit_log().topic: commit_log_settings(1)})
    return endpoints


def published(endpoints: Endpoints, run: str) -> tuple[Window, str]:
    """The window and identity of a backfill that is sealed."""
    name, identity = endpoints.pipeline.name, backfill_identity(endpoints.pipeline.name, run)
    at = BinlogCoordinates("bin.000001", 4)
    window = Window(name, 1, "3e11fa47-71ca-11e1-9e33-c80aa9429562", at, BinlogCoordinates("bin.000002", 4), "", "", 0)
    log = endpoints.commit_log(identity)
    log.keep(AttemptRecord(run))
    log.keep(BegunRecord(window))
    log.seal(Manifest(window, 100, 1, 1, {}, 0, ()))
    return window, identity


def test_the_latest_backfills_can_be_tried_again_and_older_ones_leave_nothing(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "KEPT_BACKFILLS", 2)
    endpoints.commit_log().keep(AttemptRecord("the pipeline's own records stay"))
    runs = [published(endpoints, f"run{number}") for number in range(4)]
    window, latest = runs[-1]
    for _ in range(2):  # a retry of the task `finish`
        assert backfill.finish_backfill(endpoints, window, latest).window == window
    kept = endpoints.commit_log().identities()
    assert sorted(kept) == sorted([endpoints.pipeline.name, runs[2][1], latest])
    assert backfill.sealed_backfill(endpoints, *runs[2]) is not None
    with pytest.raises(AccountingError, match="not sealed"):
        backfill.finish_backfill(endpoints, *runs[0])
