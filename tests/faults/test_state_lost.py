"""The state store lost, restored from an older backup, or away: nothing twice, nothing missing."""

from __future__ import annotations

import shutil
import time

import kafka
import pytest
from both_settings import with_everything
from faults.feed import NOTHING_NEW, Feed, Run

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import TopicSettings, ensure_topics
from changefeed.model.topic_name import commit_log_topic, schema_history_topic
from changefeed.state.table_store import TableCheckpointStore
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)

COMPACT = {"cleanup.policy": "compact"}


@pytest.mark.extended
def test_a_state_store_restored_from_an_older_backup_repeats_nothing(feed: Feed) -> None:
    feed.write()
    feed.run()
    backup = feed.state.read_bytes()
    for _ in range(2):
        feed.write(10)
        feed.run()
    ids = feed.ids()
    feed.state.write_bytes(backup)
    feed.run()
    assert feed.ids() == ids
    feed.write(10)
    feed.run()
    feed.check()


def test_a_lost_checkpoint_stops_the_run_until_it_is_recovered_from_the_commit_log(feed: Feed) -> None:
    feed.write()
    feed.run()
    feed.state.unlink()
    feed.write(10)
    run = feed.begin()
    assert run.result() == 2
    assert "changefeed recover" in run.text()
    status = feed.command("status", feed.name)
    assert "changefeed recover" in status.stdout, status.stderr
    done = feed.command("recover", feed.name)
    assert "by the seal of window 1" in done.stdout, done.stderr
    again = feed.command("recover", feed.name)
    assert again.returncode == 1
    assert "nothing is lost" in again.stderr
    feed.run()
    feed.check()
    shown = feed.command("windows", feed.name, "--json")
    assert '"number": 2' in shown.stdout, shown.stderr


@pytest.mark.extended
def test_checkpoint_lost_in_the_first_window_is_recovered_from_its_start(feed: Feed) -> None:
    """With `start: latest` the pipeline would otherwise begin anew after a window that is half published."""
    feed.settings["start"] = "latest"
    feed.configure()
    assert feed.begin().result() == NOTHING_NEW
    feed.write(60)
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    feed.state.unlink()
    feed.write(10)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "the begin of window 1" in run.text()
    assert feed.command("recover", feed.name).returncode == 0
    feed.run()
    feed.check()


def test_first_checkpoint_lost_before_publishing_is_found_in_the_commit_log(feed: Feed) -> None:
    """With `start: latest` the pipeline would otherwise begin after the changes written since."""
    feed.settings["start"] = "latest"
    feed.configure()
    assert feed.begin().result() == NOTHING_NEW
    feed.write(10)
    feed.state.unlink()
    feed.run()
    feed.check()


@pytest.mark.extended
def test_a_commit_log_lost_before_the_first_window_is_known_by_the_first_checkpoint(feed: Feed) -> None:
    """A window may have been published in part, and nothing says so any more."""
    feed.write(60)
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    ids = feed.ids()
    delete_topics(feed, commit_log_topic(feed.name))
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "has a checkpoint of window 0" in run.text()
    assert feed.ids() == ids


@pytest.mark.extended
def test_new_pipeline_of_an_old_name_that_never_published_begins_where_a_seek_says(feed: Feed) -> None:
    """The checkpoint may be lost, or deleted with the former pipeline."""
    feed.settings["start"] = "latest"
    feed.configure()
    assert feed.begin().result() == NOTHING_NEW
    first = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert first is not None
    feed.write(10)
    feed.state.unlink()
    checked = feed.fork_command("", "check", feed.name)
    assert checked.result() == 0, checked.text()
    text = " ".join(checked.text().split())
    assert f"its commit log has its first one, at {first.coordinates}: it goes on from there" in text
    assert f"changefeed seek {feed.name} latest" in text
    seek = feed.fork_command("", "seek", feed.name, "latest", "--why", "a new pipeline", "--yes")
    assert seek.result() == 0, seek.text()
    assert feed.begin().result() == NOTHING_NEW
    feed.write(5)
    feed.run()
    assert feed.ids()


def backfill_in_transaction(feed: Feed) -> Run:
    """A backfill that is held while its transaction is open: a reader of committed records sees none after it."""
    file = feed.settings["start"].partition(":")[0]
    held = feed.fork_command("in_open_transaction", "backfill", feed.name, "--from-file", file)
    assert held.wait_until_held(), held.text()
    return held


def goes_on_after(feed: Feed, held: Run) -> None:
    """A run waits for the backfill's transaction and finds the records after it."""
    run = feed.begin()
    time.sleep(3)  # no less than a plan without a need waits for open transactions
    held.go_on()
    assert run.result() in (0, NOTHING_NEW), run.text()
    assert held.result() == 0, held.text()


@pytest.mark.long
@pytest.mark.extended
def test_seek_recorded_after_an_open_backfill_transaction_is_found(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    to = feed.mysql.head()
    seeking = feed.fork_command("before_log_write:2", "seek", feed.name, to, "--why", "a test", "--yes")
    assert seeking.wait_until_held(), seeking.text()
    held = backfill_in_transaction(feed)
    seeking.go_on()
    assert seeking.result() == 0, seeking.text()
    feed.write(5)
    checked = feed.fork_command("", "check", feed.name)
    goes_on_after(feed, held)
    assert checked.result() == 0, checked.text()
    feed.check()


@pytest.mark.long
@pytest.mark.extended
def test_first_checkpoint_recorded_after_an_open_backfill_transaction_is_found(feed: Feed) -> None:
    begin, feed.settings["start"] = feed.settings["start"], "latest"
    feed.configure()
    feed.write(5)
    feed.mysql.execute("FLUSH BINARY LOGS")
    noting = feed.begin("before_first_checkpoint")
    assert noting.wait_until_held(), noting.text()
    feed.settings["start"] = begin
    held = backfill_in_transaction(feed)
    noting.go_on()
    assert noting.result() == NOTHING_NEW, noting.text()
    noted = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert noted is not None
    feed.state.unlink()
    feed.write(5)
    goes_on_after(feed, held)
    shown = feed.command("windows", feed.name, "--json")
    assert f'"start": "{noted.coordinates}"' in shown.stdout, shown.stdout


@pytest.mark.extended
def test_a_state_database_that_is_away_at_the_commit_costs_nothing_but_the_run(feed: Feed) -> None:
    feed.write()
    run = feed.begin("after_seal")
    assert run.wait_until_held(), run.text()
    away = feed.state.with_suffix(".away")
    shutil.move(feed.state, away)
    feed.state.mkdir()
    run.go_on()
    assert run.result() == 1
    assert "StateStoreUnavailableError" in run.text()
    feed.state.rmdir()
    shutil.move(away, feed.state)
    feed.write(10)
    feed.run()
    feed.check()


@pytest.mark.extended
def test_progress_of_a_dropped_table_is_forgotten_by_prune(feed: Feed) -> None:
    feed.write()
    feed.run()
    feed.mysql.execute(
        f"CREATE TABLE `{feed.name}`.gone (id INT PRIMARY KEY)", f"INSERT INTO `{feed.name}`.gone VALUES (1)"
    )
    feed.run()
    feed.mysql.execute(f"DROP TABLE `{feed.name}`.gone")
    feed.run()
    done = feed.command("prune", feed.name)
    assert f"forgot {feed.name}.gone; " in done.stdout, done.stderr
    feed.write(5)
    feed.run()
    feed.check()


def delete_topics(feed: Feed, *topics: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    admin.delete_topics(list(topics))
    while set(topics) & set(admin.list_topics()):
        pass
    admin.close()


@pytest.mark.extended
def test_lost_commit_log_with_a_checkpoint_stops_runs_until_a_seek(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.use_connect(spark_connect.url)
    feed.write(5)
    feed.run()
    feed.write(60)
    run = feed.begin("after_transaction_commit:2")  # which are in Kafka, and nothing says so any more
    assert run.wait_until_held(), run.text()
    run.kill()
    ids = feed.ids()
    at = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert at is not None
    delete_topics(feed, commit_log_topic(feed.name), schema_history_topic(feed.name))
    remedy = f"changefeed seek {feed.name} {at.coordinates} --why"
    for command in ("plan", "run", "check", "recover"):
        done = feed.fork_command("", command, feed.name)
        assert done.result() == 1, done.text()
        assert f"has a checkpoint of window 1 at {at.coordinates}" in done.text()
        assert remedy in done.text()
    assert feed.ids() == ids
    moved = feed.command("seek", feed.name, str(at.coordinates), "--why", "log lost", "--yes")
    assert "what a run published after" in moved.stdout
    feed.write(5)
    feed.run()
    assert set(feed.ids()) > set(ids), "what was published in part comes twice, as the seek said; nothing is missing"


@pytest.mark.extended
def test_recover_without_commit_log_and_checkpoint_makes_no_claim_on_published_rows(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.use_connect(spark_connect.url)
    feed.write(5)
    feed.run()
    delete_topics(feed, commit_log_topic(feed.name), schema_history_topic(feed.name))
    feed.state.unlink()
    done = feed.command("recover", feed.name)
    assert done.returncode == 1
    assert "either it has never published, or both were lost" in done.stderr
    assert "changefeed.id" in done.stderr
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "has records of this server" in run.text()
    assert "no commit log in the cluster knows" in run.text()
    assert feed.ids() == ids
    assert feed.command("seek", feed.name, "latest", "--why", "all lost", "--yes").returncode == 0
    feed.write(5)
    feed.run()
    feed.check()


@pytest.mark.long
@with_everything
def test_unneeded_schema_history_too_large_for_its_topic_does_not_stop_the_seal(
    feed: Feed,
) -> None:
    feed.settings |= {"publish_ddl": "off", "format": "flat"}
    feed.configure()
    ensure_topics(
        KafkaConnection(feed.kafka.bootstrap),
        {
            schema_history_topic(feed.name): TopicSettings(
                1, 1, {"cleanup.policy": "compact", "max.message.bytes": "90"}
            )
        },
    )
    feed.write()
    feed.run()
    assert feed.begin().result() == NOTHING_NEW
