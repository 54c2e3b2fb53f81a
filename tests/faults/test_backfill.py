"""A backfill beside the live windows: what it publishes again goes to its own topics."""

from __future__ import annotations

from pathlib import Path

from both_settings import on_both_settings
from faults.feed import Feed
from faults.inline_spark import InlineSpark
from integration.rebuilt import event_ids, records_of

from changefeed.ingest.window_run import ingest
from changefeed.operations.backfill import plan_backfill
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import read_pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.source.archive.archive import Archive


@on_both_settings
def test_a_backfill_into_replay_topics_leaves_the_live_schema_changes_alone(feed: Feed) -> None:
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.accounts ADD COLUMN extra INT FIRST")
    feed.run()
    environment = feed.env()
    pipeline = read_pipeline(Path(environment["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml")
    file = feed.settings["start"].partition(":")[0]
    request = BackfillRequest(pipeline=feed.name, from_file=file)

    def lookup(connection_id: str) -> str:
        return environment[f"AIRFLOW_CONN_{connection_id.upper()}"]

    planned = plan_backfill(PipelineConnections(pipeline, lookup), request, archive_of=Archive)
    live = f"changefeed.{feed.name}.schema-changes"
    before = event_ids(records_of(feed.kafka.bootstrap, live))
    replayed = PipelineConnections(backfill_pipeline(pipeline, request), lookup)
    ingest(InlineSpark(), replayed, planned.window, identity=f"{feed.name}.backfill.1")
    assert event_ids(records_of(feed.kafka.bootstrap, live)) == before
    again = [
        name.replace(f"{live}.replay", live) for name in event_ids(records_of(feed.kafka.bootstrap, f"{live}.replay"))
    ]
    assert again == before
    assert len(before) == 4  # the database, its two tables, and what was altered
