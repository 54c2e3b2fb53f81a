"""`checkpoint: {store: kafka}`: killed, lost, moved and renamed, nothing is published twice or missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from faults.existing_rows import finish
from faults.feed import NOTHING_NEW, Feed
from faults.test_state_lost import delete_topics
from kafka.admin import ConfigResource, ConfigResourceType
from long_form import long

from changefeed.kafka.connection import KafkaConnection
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.topic_name import checkpoint_topic, commit_log_topic, schema_history_topic
from changefeed.state.kafka_store import KafkaCheckpointStore
from changefeed.state.table_store import TableCheckpointStore

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]

TABLE, KAFKA = {"store": "table", "connection": "state"}, {"store": "kafka"}


@pytest.fixture(autouse=True)
def in_kafka(feed: Feed) -> None:
    keep(feed, KAFKA)


def keep(feed: Feed, store: dict[str, str]) -> None:
    feed.settings["checkpoint"] = store
    feed.configure()


def stored(feed: Feed) -> Checkpoint | None:
    return KafkaCheckpointStore(KafkaConnection(feed.kafka.bootstrap)).load(feed.name)


@pytest.mark.parametrize(
    "stage",
    ["before_first_checkpoint", "in_checkpoint_write", *long("before_checkpoint_write", "after_checkpoint")],
)
def test_run_after_a_kill_around_the_first_checkpoint_repeats_nothing(feed: Feed, stage: str) -> None:
    feed.write(5)
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()
    feed.write(5)
    feed.run_until_current()
    feed.check()
    assert not feed.state.exists()


@pytest.mark.parametrize("stage", ["in_checkpoint_write", *long("before_checkpoint_write", "after_checkpoint")])
def test_run_after_a_kill_at_commit_repeats_nothing(feed: Feed, stage: str) -> None:
    feed.write(5)
    feed.run()
    before = stored(feed)
    feed.write(10)
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()
    assert (stored(feed) == before) == (stage != "after_checkpoint")
    feed.write(5)
    feed.run_until_current()
    feed.check()
    assert feed.begin().result() == NOTHING_NEW


def test_seek_killed_in_its_write_is_ended_by_the_next_run(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    feed.write(5)
    ids = feed.ids()
    dying = feed.begin_command("in_checkpoint_write", "seek", feed.name, "latest", "--why", "a test", "--yes")
    assert dying.wait_until_held(), dying.text()
    dying.kill()
    assert feed.begin().result() == NOTHING_NEW, "all was skipped"
    assert feed.ids() == ids


@pytest.mark.long
def test_commit_asleep_while_another_run_commits_moves_nothing(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    feed.write(5)
    asleep = feed.begin("in_checkpoint_write")
    assert asleep.wait_until_held(), asleep.text()
    feed.run()
    feed.write(5)
    feed.run()
    at = stored(feed)
    asleep.go_on()
    assert asleep.result() == 2, asleep.text()
    assert "StaleCheckpointError" in asleep.text()
    assert stored(feed) == at
    feed.check()


def test_lost_checkpoint_topic_stops_runs_until_recover(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    at = stored(feed)
    assert at is not None
    delete_topics(feed, checkpoint_topic(feed.name))
    feed.write(5)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert f"changefeed recover {feed.name}" in run.text()
    done = feed.command("recover", feed.name)
    assert done.returncode == 0, done.stderr
    recovered = stored(feed)
    assert recovered is not None
    assert replace(recovered, committed_at_ms=0) == replace(at, committed_at_ms=0)
    feed.run()
    feed.check()


@pytest.mark.long
def test_lost_commit_log_stops_the_run_and_names_the_checkpoint(feed: Feed) -> None:
    feed.settings["start"] = "latest"
    feed.configure()
    assert feed.begin().result() == NOTHING_NEW
    at = stored(feed)
    assert at is not None
    delete_topics(feed, commit_log_topic(feed.name))
    feed.write(5)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert f"changefeed seek {feed.name} {at.coordinates} --why" in run.text()
    seek = feed.command("seek", feed.name, str(at.coordinates), "--why", "lost", "--yes")
    assert seek.returncode == 0, seek.stderr
    feed.run()
    feed.check()


def test_all_state_topics_lost_stops_the_run_as_topics_have_records(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    ids = feed.ids()
    delete_topics(feed, checkpoint_topic(feed.name), commit_log_topic(feed.name), schema_history_topic(feed.name))
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "has records of this server" in run.text()
    assert feed.ids() == ids


@pytest.mark.parametrize("policy", ["compact,delete", *long("delete")])
def test_checkpoint_topic_with_a_retention_policy_is_refused(feed: Feed, policy: str) -> None:
    feed.write(5)
    feed.run()
    configs = {"cleanup.policy": policy}
    with KafkaConnection(feed.kafka.bootstrap).admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, checkpoint_topic(feed.name), configs)])
    checked = feed.command("check", feed.name)
    assert checked.returncode == 1, checked.stdout
    assert f"{checkpoint_topic(feed.name)!r}" in checked.stdout + checked.stderr
    assert "cleanup.policy" in checked.stdout + checked.stderr
    run = feed.begin()
    assert run.result() == 2, run.text()


@pytest.mark.long
def test_other_store_continues_only_after_recover_and_old_store_catches_up(feed: Feed) -> None:
    keep(feed, TABLE)
    feed.write(5)
    feed.run()
    keep(feed, KAFKA)
    feed.write(5)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "has no checkpoint in its checkpoint topic in Kafka" in run.text()
    assert f"changefeed recover {feed.name}" in run.text()
    assert feed.command("recover", feed.name).returncode == 0
    feed.run()
    feed.write(5)
    feed.run()
    ids, at = feed.ids(), stored(feed)
    assert at is not None
    keep(feed, TABLE)  # whose checkpoint is older than the commit log
    feed.run()
    assert feed.ids() == ids
    table = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert table is not None
    assert table.coordinates.has_reached(at.coordinates)
    feed.write(5)
    feed.run()
    feed.check()


@pytest.mark.parametrize("stage", ["in_checkpoint_write", *long("", "before_checkpoint_write")])
def test_renamed_pipeline_goes_on_whatever_is_killed(feed: Feed, stage: str) -> None:
    feed.write(5)
    feed.run()
    old, new = feed.name, f"{feed.name}_new"
    folder = feed.folder / "pipelines"
    settings = yaml.safe_load((folder / f"{old}.yaml").read_text()) | {"name": new}
    (folder / f"{old}.yaml").unlink()
    (folder / f"{new}.yaml").write_text(yaml.safe_dump(settings))
    feed.write(5)
    if stage:
        dying = feed.fork_command(stage, "rename", old, new)
        assert dying.wait_until_held(), dying.text()
        dying.kill()
    done = feed.fork_command("", "rename", old, new)
    assert done.result() == 0, done.text()
    assert stored(feed) is None
    store = KafkaCheckpointStore(KafkaConnection(feed.kafka.bootstrap))
    assert new in store.pipelines()
    assert old not in store.pipelines()
    assert run_as(feed, new) in (0, NOTHING_NEW)
    feed.check()


def run_as(feed: Feed, new: str) -> int:
    environment, log, _ = feed._prepare("")
    return int(feed.runner.begin(new, environment, log).wait(240))


def test_commands_without_airflow_know_the_checkpoint(feed: Feed, tmp_path: Path) -> None:
    feed.write(5)
    feed.run()
    at = stored(feed)
    assert at is not None
    for command in ("status", "check", "windows", "prune"):
        done = feed.command(command, feed.name)
        assert done.returncode == 0, done.stdout + done.stderr
    assert str(at.coordinates) in feed.command("status", feed.name).stdout
    assert not (tmp_path / "airflow").exists()


def test_snapshot_backfill_verify_and_seek_need_no_database(feed: Feed) -> None:
    feed.write(10)
    feed.run()
    first = stored(feed)
    assert first is not None
    finish(feed)
    done = feed.command(
        "backfill", feed.name, "--from-file", feed.settings["start"].partition(":")[0], "--run-id", "again"
    )
    assert done.returncode == 0, done.stderr
    assert feed.command("verify", feed.name).returncode == 0
    feed.write(10)
    feed.run()
    last = stored(feed)
    assert last is not None
    done = feed.command("seek", feed.name, str(first.coordinates), "--why", "a test", "--yes")
    assert done.returncode == 0, done.stderr
    feed.run()
    assert (after := stored(feed)) is not None
    assert after.coordinates == last.coordinates
    assert not feed.state.exists()
