"""A backfill, a snapshot or a rename that slept while the pipeline got another name repeats and removes nothing."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from faults.existing_rows import begin, prepare, reads
from faults.feed import Feed, Run
from faults.inline_spark import InlineSpark
from faults.test_asleep import CHECKPOINT, WRITE, extended, put_to_sleep
from faults.test_renamed import ended, named
from integration.topic_rows import event_ids
from long_form import long

from changefeed.errors import CheckpointError
from changefeed.ingest.window_run import ingest
from changefeed.operations.backfill import plan_backfill
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import read_pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.snapshot.planning import plan_snapshot
from changefeed.snapshot.run import run_snapshot
from changefeed.source.archive.archive import Archive
from changefeed.state.table_store import TableCheckpointStore

pytestmark = pytest.mark.timeout(600)


def succeeds(run: Run) -> str:
    code, text = ended(run)
    assert code == 0, text
    return text


def wakes_and_fails(run: Run) -> None:
    run.go_on()
    os.kill(run.process.pid, signal.SIGCONT)
    code, text = ended(run)
    assert code in (1, 2), text
    assert "FencedError" in text or "was renamed to" in text, text


def renamed(feed: Feed) -> str:
    """The pipeline's new name, to which everything of it went."""
    old, new = feed.name, named(feed, f"{feed.name}-new")
    succeeds(feed.fork_command("", "rename", old, new))
    return new


def repeated(feed: Feed) -> list[str]:
    counts = Counter(event for table in ("accounts", "journal") for event in event_ids(feed.records(f"{table}.replay")))
    assert counts
    return [event for event, count in counts.items() if count > 1]


def written(feed: Feed) -> None:
    """Rows in a file of their own, without DDL: schema changes go to a topic with the pipeline's name."""
    feed.mysql.execute("FLUSH BINARY LOGS")
    feed.settings["start"] = feed.mysql.head()
    feed.write(60)
    feed.run()


def backfill(feed: Feed, name: str, fault: str = "") -> Run:
    file = feed.settings["start"].partition(":")[0]
    return feed.fork_command(fault, "backfill", name, "--from-file", file, "--run-id", "one")


STAGES = [
    "after_transaction_commit",
    *extended("in_open_transaction"),
    *long(f"{WRITE}:1", f"{WRITE}:2", "after_take_over", "before_seal"),
]


@pytest.mark.parametrize("stage", STAGES)
def test_backfill_that_slept_while_its_pipeline_was_renamed_repeats_nothing(feed: Feed, stage: str) -> None:
    feed.run()
    written(feed)
    sleeper = put_to_sleep(backfill(feed, feed.name, stage))
    new = renamed(feed)
    succeeds(backfill(feed, new))
    assert repeated(feed) == []
    wakes_and_fails(sleeper)
    assert repeated(feed) == []


@pytest.mark.extended
def test_backfill_that_is_alive_keeps_its_pipeline_from_being_renamed(feed: Feed) -> None:
    feed.run()
    written(feed)
    held = backfill(feed, feed.name, "after_transaction_commit")
    assert held.wait_until_held(), held.text()
    old, new = feed.name, named(feed, f"{feed.name}-new")
    code, text = ended(feed.fork_command("", "rename", old, new))
    assert (code, "is alive" in text) == (1, True), text
    held.go_on()
    succeeds(held)
    succeeds(feed.fork_command("", "rename", old, new))
    assert repeated(feed) == []


def lookup(feed: Feed, connection_id: str) -> str:
    return feed.env()[f"AIRFLOW_CONN_{connection_id.upper()}"]


def connections_of(feed: Feed) -> PipelineConnections:
    """Those of a process that read the pipeline's file while it had its old name."""
    pipeline = read_pipeline(Path(feed.env()["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml")
    return PipelineConnections(pipeline, lambda connection_id: lookup(feed, connection_id))


@pytest.mark.extended
def test_backfill_planned_under_the_old_name_does_not_begin_after_the_rename(feed: Feed) -> None:
    feed.write(20)
    feed.run()
    of_old = connections_of(feed)
    request = BackfillRequest(pipeline=feed.name, from_file=feed.settings["start"].partition(":")[0])
    planned = plan_backfill(of_old, request, archive_of=Archive)
    of_backfill = PipelineConnections(backfill_pipeline(of_old.pipeline, request), of_old.lookup)
    renamed(feed)
    with pytest.raises(CheckpointError, match="was renamed to"):
        ingest(InlineSpark(), of_backfill, planned.window, identity=f"{feed.name}.backfill.1")
    assert feed.records("accounts.replay") == []


@pytest.mark.extended
def test_snapshot_planned_under_the_old_name_does_not_begin_after_the_rename(feed: Feed) -> None:
    prepare(feed, "numbers", rows=50)
    of_old, store = connections_of(feed), TableCheckpointStore(f"sqlite:///{feed.state}")
    request = SnapshotRequest(pipeline=feed.name)
    planned = plan_snapshot(of_old, store, request, f"{feed.name}.snapshot.1")
    renamed(feed)
    with pytest.raises(CheckpointError, match="was renamed to"):
        list(run_snapshot(InlineSpark(), of_old, planned))
    assert reads(feed, "numbers") == []


@pytest.mark.extended
@pytest.mark.parametrize("stage", ["in_open_transaction", *long(f"{WRITE}:2", "after_transaction_commit")])
def test_snapshot_that_slept_while_its_pipeline_was_renamed_repeats_nothing(feed: Feed, stage: str) -> None:
    prepare(feed, "numbers", "pairs", rows=1000)
    sleeper = put_to_sleep(begin(feed, fault=stage))
    new = renamed(feed)
    arguments = ("--run-id", "first", "--chunk-rows", "300")
    succeeds(feed.fork_command("", "snapshot", new, *arguments))
    wakes_and_fails(sleeper)
    keys = [row["id"] for row in reads(feed, "numbers")]
    assert len(keys) == len(set(keys)) == 1000


@pytest.mark.extended
@pytest.mark.parametrize("stage", [f"{WRITE}:3", CHECKPOINT, *long(f"{WRITE}:2", "before_checkpoint_removal")])
def test_rename_that_slept_leaves_the_checkpoint_of_a_new_pipeline_of_the_old_name(feed: Feed, stage: str) -> None:
    feed.write(5)
    feed.run()
    old, new = feed.name, named(feed, f"{feed.name}-new")
    sleeper = put_to_sleep(feed.fork_command(stage, "rename", old, new))
    succeeds(feed.fork_command("", "rename", old, new))
    feed.settings["topics"] = {"template": "{pipeline}.{table}"}
    feed.configure()
    succeeds(feed.fork_command("", "seek", old, "latest", "--why", "a new pipeline of that name", "--yes"))
    store = TableCheckpointStore(f"sqlite:///{feed.state}")
    before = store.load(old)
    assert before is not None
    sleeper.go_on()
    os.kill(sleeper.process.pid, signal.SIGCONT)
    sleeper.result()
    assert store.load(old) == before
    moved = store.load(new)
    assert moved is not None
    assert moved.window == 1
