"""A backfill beside the live windows: what it publishes again goes to its own topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from faults.feed import Feed
from faults.inline_spark import InlineSpark
from integration.rebuilt import event_ids, records_of

from changefeed.archive.archive import Archive
from changefeed.endpoints.endpoints import Endpoints
from changefeed.pipelines.file import read_pipeline
from changefeed.spark.ingest import ingest
from changefeed.upkeep.backfill import plan_backfill
from changefeed.upkeep.backfill_request import BackfillRequest, backfill_pipeline


def test_a_backfill_into_replay_topics_leaves_the_live_schema_changes_alone(feed: Feed) -> None:
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.accounts ADD COLUMN extra INT FIRST")
    feed.run()
    environment = feed.env()
    pipeline = read_pipeline(Path(environment["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml")
    file = feed.settings["start"].partition(":")[0]
    request = BackfillRequest(pipeline=feed.name, from_file=file)

    def lookup(connection_id: str) -> str:
        return environment[f"AIRFLOW_CONN_{connection_id.upper()}"]

    planned = plan_backfill(Endpoints(pipeline, lookup), request, archive_of=Archive)
    live = f"changefeed.{feed.name}.schema-changes"
    before = event_ids(records_of(feed.kafka.bootstrap, live))
    replayed = Endpoints(backfill_pipeline(pipeline, request), lookup)
    ingest(cast(Any, InlineSpark()), replayed, planned.window, identity=f"{feed.name}.backfill.1")
    assert event_ids(records_of(feed.kafka.bootstrap, live)) == before
    again = [
        name.replace(f"{live}.replay", live) for name in event_ids(records_of(feed.kafka.bootstrap, f"{live}.replay"))
    ]
    assert again == before
    assert len(before) == 4  # the database, its two tables, and what was altered
