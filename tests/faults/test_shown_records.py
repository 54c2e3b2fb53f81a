"""Records of a pipeline: no rows of another pipeline, and no columns that it hides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from faults.feed import Feed, Runner
from integration.topic_rows import event_ids, records_of

from changefeed.kafka.commit_log.log import EMPTY_STATE
from changefeed.operations.pipeline_topics import pipeline_topics
from changefeed.operations.record_filter import RecordFilter
from changefeed.operations.records import find_topic, read_records
from changefeed.operations.shown_records import ShownRecord
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import read_pipeline

pytestmark = pytest.mark.extended


def search(feed: Feed, table: str, topic: str, limit: int = 1000) -> tuple[ShownRecord, ...]:
    """What Records of the pipeline shows of the topic of a table, the newest first."""
    environment, pipeline = feed.env(), read_pipeline(feed.folder / "pipelines" / f"{feed.name}.yaml")
    connections = PipelineConnections(pipeline, lambda name: environment[f"AIRFLOW_CONN_{name.upper()}"])
    state = connections.commit_log().read_all().get(feed.name, EMPTY_STATE)
    topics = pipeline_topics(pipeline, {f"{feed.name}.{table}": topic}, state)
    chosen = find_topic(topics, None, f"{feed.name}.{table}")
    assert chosen is not None
    found = read_records(connections, topics, chosen, state, RecordFilter(), limit=limit)
    assert found.searched.is_complete or limit < 1000
    return found.records


def shown(feed: Feed, table: str, shared: str) -> list[tuple[str, bool]]:
    """The event ids that Records shows, sorted, each with whether it is a tombstone."""
    return sorted((one.id, one.record.value is None) for one in search(feed, table, f"{shared}.{table}"))


def test_records_show_no_row_of_another_pipeline_in_the_topic(feed: Feed, tmp_path: Path, runner: Runner) -> None:
    """Rows of both are in one window of the second, and between its offsets: it is held while the first publishes."""
    shared = f"{feed.name}s"
    settings = {**feed.settings, "topics": {"template": f"{shared}.{{table}}", "partitions": 1}}
    feed.settings = settings
    feed.configure()
    folder = tmp_path / "second"
    folder.mkdir()
    second = Feed(f"{feed.name}b", feed.mysql, feed.kafka, folder, runner, settings)
    second.configure(transaction_rows=1)
    try:
        feed.write(4)
        feed.run()
        for _ in range(4):  # each file is a slice, with batches of its own
            feed.write(4)
            second.write(4)
            feed.mysql.execute("FLUSH BINARY LOGS")
        run = second.begin("after_transaction_commit:4")
        assert run.wait_until_held(), run.text()
        feed.run()
        run.go_on()
        assert run.result() == 0, run.text()
        second.write(5)
        second.run()
        is_between = []
        for table in ("accounts", "journal"):
            records = records_of(feed.kafka.bootstrap, f"{shared}.{table}")
            own = {each.name: shown(each, table, shared) for each in (feed, second)}
            for each in (feed, second):
                newest = [one.id for one in search(each, table, f"{shared}.{table}")][:5]
                assert [one.id for one in search(each, table, f"{shared}.{table}", limit=5)] == newest
            first = [id for id in event_ids(records) if id in dict(own[feed.name])]
            is_between.append(event_ids(records)[: len(first)] != first)
            assert sorted(own[feed.name] + own[second.name]) == sorted(
                (each, record.value is None) for each, record in zip(event_ids(records), records, strict=True)
            )
        assert any(is_between), "the second published before and after the first"
    finally:
        feed.mysql.execute(f"DROP DATABASE `{second.name}`")


def test_hidden_column_is_not_shown_under_the_name_that_it_had_before(feed: Feed) -> None:
    accounts = f"`{feed.name}`.accounts"
    feed.mysql.execute(f"INSERT INTO {accounts} VALUES (1, 1, 'SECRET')")
    feed.run()
    feed.mysql.execute(
        f"ALTER TABLE {accounts} RENAME COLUMN text TO words", f"INSERT INTO {accounts} VALUES (2, 1, 'MORE')"
    )
    feed.settings["columns"] = {"exclude": [f"{feed.name}.accounts.words"]}
    feed.configure()
    feed.run()
    records = search(feed, "accounts", f"{feed.name}.accounts")
    assert {one.changes[0].hidden for one in records} == {("text",), ()}
    assert "SECRET" not in json.dumps([one.to_json() for one in records])
    assert len(records) == 2
