"""A continuous run: windows one after another in one process, and what may happen between them."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from both_settings import on_stock_servers_first, with_everything
from faults.conftest import Pair, run_for
from faults.feed import NOTHING_NEW, TABLES, Feed, Run
from faults.proxy import Proxy
from faults.replica import stop_replicating, wait_until_caught_up
from faults.test_parked import add_bad_table, check_once
from faults.test_verify import connections_of
from integration.topic_rows import event_ids, select_rows, topic_rows
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions

from changefeed.airflow import tasks
from changefeed.cli import status as status_command
from changefeed.cli.runs import committing
from changefeed.errors import CheckpointError, StaleCheckpointError, TopicError
from changefeed.ingest.checkpoint_mover import CheckpointMover
from changefeed.ingest.followed_settings import FollowedSettings
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.model.fault_point import STAGES
from changefeed.model.topic_name import commit_log_topic
from changefeed.operations.seek import plan_seek, seek
from changefeed.operations.status import status
from changefeed.pipeline import heartbeat
from changefeed.pipeline import plan as plan_module
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.known_progress import state_for_checkpoint
from changefeed.state.table_store import TableCheckpointStore
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.timeout(600)

SECONDS = 120.0
LATER_STAGES = [
    pytest.param(stage, marks=[] if stage == "before_seal" else pytest.mark.extended)
    for stage in STAGES
    if stage != "before_first_checkpoint"
]
"""Stages that a run reaches for each window."""


def publish_rest(feed: Feed) -> None:
    """Publish what is left with a run that is not continuous."""
    del feed.settings["windows"]
    feed.configure()
    feed.run_until_current()


def run_bounded(feed: Feed) -> None:
    """Publish what is left, then check that all is there once."""
    publish_rest(feed)
    feed.check()


def wait(until: Callable[[], bool], run: Run) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert run.process.poll() is None, run.text()
        assert time.monotonic() < deadline, run.text()
        time.sleep(0.2)


def write_until_held(feed: Feed, run: Run) -> None:
    """Write further windows until ``run`` reaches its stage."""

    def is_held() -> bool:
        feed.write(1)
        return run.file.exists()

    wait(is_held, run)


@contextmanager
def repeating(action: Callable[[], None], pause_seconds: float) -> Iterator[None]:
    """Repeat the ``action`` in a thread, with pauses, during the block."""
    ended = Event()

    def repeat() -> None:
        while not ended.wait(pause_seconds):
            action()

    with ThreadPoolExecutor(1) as thread:
        repeated = thread.submit(repeat)
        try:
            yield
        finally:
            ended.set()
            repeated.result()


def writing(feed: Feed) -> AbstractContextManager[None]:
    """Write a row five times a second, so that each window has some."""
    return repeating(lambda: feed.write(1), 0.2)


def has_rows(feed: Feed) -> bool:
    """Whether the topics have the rows of the tables."""
    return all(topic_rows(feed.records(table)) == select_rows(feed.mysql, feed.name, table) for table in TABLES)


def sealed(run: Run) -> list[int]:
    """The numbers of the windows that the run has sealed; [0] before the first."""
    return [int(number) for number in re.findall(r"(?:sealed|committed) window (\d+)", run.text(), re.MULTILINE)] or [0]


def repeated(feed: Feed) -> set[str]:
    """The events that the topics have twice; none has them more often."""
    counts = Counter(feed.ids())
    assert max(counts.values()) <= 2
    return {event for event, count in counts.items() if count == 2}


def end_offsets(feed: Feed) -> dict[TopicPartition, int]:
    """The ends of all topics of the pipeline, after records of open and aborted transactions too."""
    with closing(KafkaConsumer(bootstrap_servers=feed.kafka.bootstrap)) as consumer:
        topics = [topic for topic in consumer.topics() if feed.name in topic]
        numbers = {topic: consumer.partitions_for_topic(topic) for topic in topics}
        found: dict[TopicPartition, int] = consumer.end_offsets(
            [TopicPartition(topic, number) for topic in topics for number in numbers[topic]]
        )
    assert {topic.rpartition(".")[2] for topic in topics} >= {*TABLES, "commits"}
    return found


def check_first_ones(feed: Feed) -> None:
    """Check that no change is missing, and that those that are not repeated are in order."""
    for table in TABLES:
        records, first = feed.records(table), dict[str, Any]()
        for record, event in zip(records, event_ids(records), strict=True):
            first.setdefault(event, record)
        assert topic_rows([*first.values()]) == select_rows(feed.mysql, feed.name, table)


def checkpoint_window(feed: Feed) -> int:
    found = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert found is not None
    return found.window


def is_committed(feed: Feed, run: Run) -> bool:
    """Whether the topics have all rows, and the checkpoint is after the last window that ``run`` has sealed. Before the
    first one is sealed it is false: rows are in the topics before their window is sealed."""
    return has_rows(feed) and 0 < sealed(run)[-1] == checkpoint_window(feed)


def shown_window(feed: Feed) -> int:
    """The number of the window that a status shows as the last one."""
    connections = connections_of(feed)
    return status(connections, TableCheckpointStore(f"sqlite:///{feed.state}")).window


@on_stock_servers_first
def test_changes_are_published_and_committed_while_the_run_goes_on(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    feed.write(3)
    run = feed.begin()
    wait(lambda: has_rows(feed), run)
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.journal MODIFY text VARCHAR(120)")
    feed.write(3)
    wait(lambda: has_rows(feed) and sealed(run)[-1] >= 2, run)
    number = sealed(run)[-1]
    assert shown_window(feed) >= number, "the status is that of the last window, not of the checkpoint"
    wait(lambda: checkpoint_window(feed) == sealed(run)[-1], run)
    run.kill()
    run_bounded(feed)


@with_everything
def test_windows_under_one_lease_have_each_its_own_time_and_partitions(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    with writing(feed):
        run = feed.begin()
        wait(lambda: sealed(run)[-1] >= 3, run)
        admin = KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
        admin.create_partitions({f"{feed.name}.journal": NewPartitions(6)})
        admin.close()
        wait(lambda: any(record.partition > 1 for record in feed.records("journal")), run)
        wait(lambda: len({value["ts_ms"] for value in values_of(feed, "journal")}) > 3, run)
    wait(lambda: has_rows(feed), run)
    run.kill()
    assert all(value["source"]["ts_ms"] <= value["ts_ms"] for value in values_of(feed, "journal")), (
        "a window has the time of an earlier one"
    )


def values_of(feed: Feed, table: str) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in feed.records(table) if record.value]


@pytest.mark.extended
def test_a_run_ends_after_its_time_with_everything_committed(continuous: Feed) -> None:
    continuous.write(3)
    run = continuous.begin()
    assert run.result() == 0, run.text()
    assert checkpoint_window(continuous) == sealed(run)[-1]
    continuous.check()
    del continuous.settings["windows"]
    continuous.configure()
    assert continuous.begin().result() == NOTHING_NEW


@pytest.mark.extended
def test_an_idle_run_seals_nothing(continuous: Feed) -> None:
    continuous.write(1)
    run_bounded(continuous)
    before, ends = checkpoint_window(continuous), end_offsets(continuous)
    run_for(continuous, "10s")
    run = continuous.begin()
    assert run.result() == 0, run.text()
    assert (sealed(run), checkpoint_window(continuous)) == ([0], before)
    assert end_offsets(continuous) == ends, "it writes nothing, also not to the commit log"


@pytest.mark.long
@pytest.mark.extended
def test_an_idle_run_writes_nothing_after_it_has_taken_over(handing_over: Feed) -> None:
    feed = handing_over
    feed.write(1)
    run_bounded(feed)
    run_for(feed, "10m")
    run, log = feed.begin(), connections_of(feed).commit_log()

    def has_taken_over() -> bool:
        kinds = {entry.kind for entry in log.entries()}
        return "takeover" in kinds and "lease" not in kinds

    wait(has_taken_over, run)
    ends = end_offsets(feed)
    time.sleep(5)
    assert end_offsets(feed) == ends
    feed.write(1)
    check_published_by(run, feed)


@pytest.mark.extended
def test_a_run_that_another_one_blocks_to_its_end_is_no_success(continuous: Feed) -> None:
    continuous.write(3)
    hanging = continuous.begin("before_seal")
    assert hanging.wait_until_held(), hanging.text()
    blocked = continuous.begin()
    assert blocked.result() == 1, blocked.text()
    assert "is being published by" in blocked.text().splitlines()[-1]
    hanging.kill()
    run_bounded(continuous)


def last_error(run: Run) -> str:
    """The name and the message of the error that ended the run."""
    return re.split(r"^(?=\w+Error: )", run.text(), flags=re.MULTILINE)[-1]


@pytest.mark.extended
def test_an_error_that_stays_ends_the_run_after_it_commits_what_it_has_sealed(continuous: Feed) -> None:
    """As it ends a run with one window; the next run publishes the rest once."""
    feed = continuous
    marker = add_bad_table(feed)
    feed.settings["on_table_error"] = "stop"
    run_for(feed, "10m")
    feed.write(3)

    def begin_command() -> Run:
        return replace(feed.fork_command("", "run", feed.name), tells_terminal=True)

    run = begin_command()  # it moves the checkpoint each ten seconds, and at its end
    wait(lambda: has_rows(feed), run)
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.bad VALUES (1, 1, 'x')")
    feed.write(3)
    assert run.result() == 2, run.text()
    assert "the marker exists" in last_error(run)
    log = CommitLog(KafkaConnection(feed.kafka.bootstrap), commit_log_topic(feed.name), feed.name)
    assert checkpoint_window(feed) == max(log.read().seals)
    del feed.settings["windows"]
    feed.configure()
    with_one_window = begin_command()
    assert with_one_window.result() == 2, with_one_window.text()
    assert last_error(run) == last_error(with_one_window)

    marker.unlink()
    run_for(feed, "10m")
    following = feed.begin()
    wait(lambda: has_rows(feed) and len(feed.records("bad")) == 1, following)
    check_published_by(following, feed)
    check_once(feed)


@pytest.mark.extended
def test_a_password_that_changes_ends_the_run_so_that_a_retry_reads_the_new_one(continuous: Feed) -> None:
    """Airflow reads the connection again for a retry, which a terminal error would prevent."""
    feed, user = continuous, f"`{continuous.name}`@'%'"

    def begin_with(password: str) -> Run:
        feed.connections["MYSQL_FAULTS"] = f"mysql://{feed.name}:{password}@127.0.0.1:{feed.mysql.port}"
        return replace(feed.fork_command("", "run", feed.name), tells_terminal=True)

    feed.mysql.execute(
        f"CREATE USER {user} IDENTIFIED BY 'before'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        f"GRANT SELECT ON `{feed.name}`.* TO {user}",
    )
    run_for(feed, "10m")
    feed.write(3)
    run = begin_with("before")
    wait(lambda: has_rows(feed), run)
    feed.mysql.execute(f"ALTER USER {user} IDENTIFIED BY 'after'")
    feed.write(3)
    assert run.result() == 1, run.text()
    assert "was accepted before" in last_error(run)
    assert begin_with("before").result() == 2
    feed.connections["MYSQL_FAULTS"] = f"mysql://{feed.name}:after@127.0.0.1:{feed.mysql.port}"
    run_bounded(feed)


@pytest.mark.each_case
@pytest.mark.parametrize("stage", LATER_STAGES)
def test_killed_at_a_stage_of_the_loop_the_next_run_repeats_nothing(continuous: Feed, stage: str) -> None:
    feed = continuous
    run_for(feed, "10m")
    feed.write(5)
    run = feed.begin(f"{stage}:2")
    write_until_held(feed, run)
    feed.write(5)
    run.kill()
    run_bounded(feed)


@pytest.mark.extended
def test_a_plan_is_right_beside_a_run_that_seals_windows_meanwhile(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.write(3)
    feed.run()
    read_log = state_for_checkpoint

    def read_log_later(*arguments: Any) -> CommitLogState:
        feed.write(3)
        feed.run()
        return read_log(*arguments)

    monkeypatch.setattr(plan_module, "state_for_checkpoint", read_log_later)
    planned = plan_module.plan(connections_of(feed), TableCheckpointStore(f"sqlite:///{feed.state}"))
    assert ([window.number for window in planned.unfinished], planned.window.number) == ([2], 3)


@pytest.mark.extended
def test_the_task_plan_counts_no_sealed_window_as_lag(continuous: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint follows the windows some seconds later, so an alert for `lag_seconds` would be a false one."""
    feed = continuous
    feed.write(3)
    run = feed.begin("after_seal")
    assert run.wait_until_held(), run.text()
    run.kill()
    connections, store = connections_of(feed), TableCheckpointStore(f"sqlite:///{feed.state}")
    reported: list[float | None] = []
    monkeypatch.setattr(tasks, "load_pipeline", lambda _: connections.pipeline)
    monkeypatch.setattr(tasks, "task_connections", lambda _: connections)
    monkeypatch.setattr(tasks, "checkpoint_store_of", lambda _: store)
    monkeypatch.setattr(tasks, "ingest_params", list)
    monkeypatch.setattr(tasks, "read_params", lambda _: {})
    monkeypatch.setattr(tasks, "report_position", lambda _, __, lag_seconds, ___: reported.append(lag_seconds))
    assert tasks.plan_window(feed.name)
    feed.write(1)
    assert tasks.plan_window(feed.name)
    assert [lag == 0 for lag in reported] == [True, False]


@pytest.mark.extended
def test_plan_and_check_show_a_window_as_unfinished_only_if_it_is_not_sealed(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    feed.write(3)
    run = feed.begin("after_seal")
    assert run.wait_until_held(), run.text()
    run.kill()

    def shown(command: str) -> tuple[int, str]:
        done = feed.fork_command("", command, feed.name)
        return done.result(), done.text()

    code, text = shown("plan")
    assert (code, "nothing new, all up to the head" in text) == (NOTHING_NEW, True), text
    feed.write(3)
    code, text = shown("plan")
    assert (code, "window 2 is" in text, "window 1" in text) == (0, True, False), text
    assert "next run: window 2" in shown("check")[1]
    run = feed.begin("before_seal")
    assert run.wait_until_held(), run.text()
    run.kill()
    code, text = shown("plan")
    assert (code, "window 2, " in text, "window 1" in text) == (0, True, False), text
    assert "is unfinished and comes first" in text
    assert "finishes the window of an earlier run" in shown("check")[1]


@pytest.mark.extended
def test_a_seek_goes_between_two_windows_and_the_run_goes_on_after_it(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    start = str(feed.settings["start"])
    feed.write(3)
    run = feed.begin()
    wait(lambda: is_committed(feed, run), run)
    seek = feed.fork_command("", "seek", feed.name, start, "--why", "a test", "--yes")
    assert seek.result() == 0, seek.text()
    once = set(feed.ids())
    feed.write(2)
    wait(lambda: repeated(feed) == once and len(set(feed.ids())) > len(once), run)
    run.kill()
    publish_rest(feed)
    assert repeated(feed) == once, "the seek back publishes each earlier change once more, and no other"


@pytest.mark.extended
def test_a_seek_need_not_wait_until_a_busy_run_ends(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    start = str(feed.settings["start"])
    feed.write(3)
    run = feed.begin()
    wait(lambda: has_rows(feed), run)
    before = set(feed.ids())
    with writing(feed):
        seek = feed.fork_command("", "seek", feed.name, start, "--why", "a test", "--yes")
        assert seek.result() == 0, seek.text()
        wait(lambda: before <= repeated(feed), run)
        prune = feed.fork_command("", "prune", feed.name)
        assert prune.result() == 0, prune.text()
    run.kill()
    publish_rest(feed)
    assert before <= repeated(feed)
    check_first_ones(feed)


@pytest.mark.extended
def test_windows_that_a_seek_moves_the_checkpoint_over_are_reported_once(continuous: Feed) -> None:
    feed = continuous
    feed.write(3)
    run = feed.begin("after_seal")
    assert run.wait_until_held(), run.text()
    run.kill()
    connections, store = connections_of(feed), TableCheckpointStore(f"sqlite:///{feed.state}")
    with CheckpointMover(connections, store, every_seconds=1000) as mover:
        seek(connections, plan_seek(connections, str(feed.settings["start"]), store), store, who="test", why="a test")
        mover._move()
    assert [manifest.window.number for manifest in mover.committed] == [1]


@pytest.mark.extended
def test_a_command_fails_if_it_cannot_commit_what_it_has_published(continuous: Feed) -> None:
    """The run goes on without its store, as a later run commits what it seals; but the command is no success."""
    feed = continuous
    feed.write(3)
    publish_rest(feed)
    run_for(feed, "10s")
    before = checkpoint_window(feed)
    run = feed.fork_command("", "run", feed.name)
    feed.write(3)
    wait(lambda: has_rows(feed), run)
    with closing(sqlite3.connect(feed.state, isolation_level=None)) as store:
        store.execute("BEGIN EXCLUSIVE")
        assert run.result() == 1, run.text()
    assert "database is locked" in last_error(run)
    assert checkpoint_window(feed) == before
    feed.run()
    assert checkpoint_window(feed) > before
    feed.check()


@pytest.mark.extended
def test_a_command_shows_what_it_has_published_if_another_process_commits_it(continuous: Feed) -> None:
    feed = continuous
    feed.write(3)
    publish_rest(feed)
    run_for(feed, "10s")
    connections, store = connections_of(feed), TableCheckpointStore(f"sqlite:///{feed.state}")
    with CheckpointMover(connections, store, every_seconds=0.2) as mover:
        run = feed.fork_command("", "run", feed.name, "--json")
        feed.write(3)
        wait(lambda: bool(mover.committed), run)
        assert run.result() == 0, run.text()
    shown = json.loads(run.text()[run.text().index("{") :])
    assert {window["window"]["number"] for window in shown["windows"]} >= {
        manifest.window.number for manifest in mover.committed
    }


@pytest.mark.extended
def test_a_heartbeat_that_cannot_be_written_ends_the_command_after_it_shows_the_window(
    continuous: Feed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = continuous
    feed.write(3)
    run = feed.begin("after_seal")
    assert run.wait_until_held(), run.text()
    run.kill()

    def refuse(*_: Any) -> None:
        raise TopicError("no heartbeat")

    monkeypatch.setattr(heartbeat, "write_heartbeat", refuse)
    connections, store = connections_of(feed), TableCheckpointStore(f"sqlite:///{feed.state}")
    with pytest.raises(TopicError), committing(FollowedSettings(connections), store, is_quiet=False):
        pass
    assert "committed window 1 at" in capsys.readouterr().out
    assert checkpoint_window(feed) == 1


@pytest.mark.extended
def test_a_status_asks_no_cluster_that_is_known_to_be_away(continuous: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = continuous
    feed.write(3)
    feed.run()
    connections = connections_of(feed)
    asked: list[str] = []

    def address(name: str) -> str:
        asked.append(name)
        return feed.env()[f"AIRFLOW_CONN_{name.upper()}"]

    monkeypatch.setattr(status_command, "connections_of", lambda pipeline: PipelineConnections(pipeline, address))
    monkeypatch.setattr(status_command, "store_of", lambda _: TableCheckpointStore(f"sqlite:///{feed.state}"))
    for setting in ({}, {"on_table_error": "park"}):
        pipeline = connections.pipeline.model_copy(update=setting)
        found = status_command._status(pipeline, {"kafka_faults": "BrokerUnavailableError: away"})
        assert (found.window, found.freshness_error) == (checkpoint_window(feed), "BrokerUnavailableError: away")
        assert found.error == ("BrokerUnavailableError: away" if setting else None)
    assert asked == ["mysql_faults"] * 2
    assert status_command._status(connections.pipeline, {}).freshness is not None
    assert "kafka_faults" in asked


@pytest.mark.extended
def test_a_seek_is_refused_if_its_effect_is_another_one_than_planned(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    start = str(feed.settings["start"])
    feed.write(3)
    run = feed.begin()
    wait(lambda: is_committed(feed, run), run)
    connections, store = connections_of(feed), TableCheckpointStore(f"sqlite:///{feed.state}")
    to_head, to_start = (plan_seek(connections, target, store) for target in ("latest", start))
    assert (to_head.skipped_bytes, to_head.repeated_bytes) == (0, 0)
    feed.write(3)
    wait(lambda: has_rows(feed), run)
    with pytest.raises(CheckpointError, match="has published past"):
        seek(connections, to_head, store, who="test", why="a test")
    seek(connections, to_start, store, who="test", why="a test")
    with pytest.raises(StaleCheckpointError):
        seek(connections, to_start, store, who="test", why="twice")
    run.kill()


@pytest.mark.extended
def test_a_seek_succeeds_if_the_run_commits_what_it_has_recorded(continuous: Feed) -> None:
    """The seek's record decides: the task of the run may move the checkpoint before the seek does."""
    feed = continuous
    run_for(feed, "10m")
    start = str(feed.settings["start"])
    feed.write(3)
    run = feed.begin()
    wait(lambda: is_committed(feed, run), run)
    seek = feed.fork_command("before_checkpoint_write", "seek", feed.name, start, "--why", "a test", "--yes")
    assert seek.wait_until_held(), seek.text()
    recorded = sealed(run)[-1] + 1
    wait(lambda: checkpoint_window(feed) >= recorded, run)
    seek.go_on()
    assert seek.result() == 0, seek.text()
    run.kill()


@pytest.mark.extended
def test_sealed_windows_whose_binlog_is_purged_are_not_read_again(pair_feed: Feed) -> None:
    """A retry begins with the checkpoint that its task `plan` found, which is before what the killed job sealed."""
    feed = pair_feed  # it has a server of its own
    run_for(feed, "10m")
    feed.write(3)
    feed.mysql.execute("FLUSH BINARY LOGS")
    run = feed.begin("before_checkpoint_write:2")  # after the first checkpoint nothing is committed
    try:
        wait(lambda: has_rows(feed) and sealed(run)[-1] > 0, run)
        run.kill()
        feed.mysql.execute("FLUSH BINARY LOGS", f"PURGE BINARY LOGS TO '{feed.mysql.head().partition(':')[0]}'")
        feed.write(3)
        run = feed.begin()
        wait(lambda: has_rows(feed), run)
    finally:
        run.kill()
    run_bounded(feed)


@pytest.mark.extended
def test_a_driver_that_slept_while_another_run_went_on_repeats_nothing(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    feed.write(3)
    asleep = feed.begin("before_log_write:5")
    write_until_held(feed, asleep)
    os.kill(asleep.process.pid, signal.SIGSTOP)
    other = feed.begin()
    feed.write(3)
    wait(lambda: has_rows(feed), other)
    asleep.go_on()
    os.kill(asleep.process.pid, signal.SIGCONT)
    for _ in range(5):
        feed.write(1)
        time.sleep(0.3)
    wait(lambda: has_rows(feed), other)
    asleep.kill()
    other.kill()
    run_bounded(feed)


@pytest.mark.extended
def test_a_source_that_is_lost_for_some_seconds_does_not_end_the_run(continuous: Feed, mysql_proxy: Proxy) -> None:
    feed = continuous
    run_for(feed, "10m")
    feed.write(3)
    run = feed.begin()
    wait(lambda: has_rows(feed), run)
    mysql_proxy.cut()
    wait(lambda: "the run tries again" in run.text(), run)
    feed.write(3)
    mysql_proxy.mend()
    wait(lambda: has_rows(feed), run)
    run.kill()
    run_bounded(feed)


@pytest.mark.extended
def test_a_broker_that_is_down_for_some_seconds_does_not_end_the_run(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    feed.write(3)
    run = feed.begin()
    wait(lambda: has_rows(feed), run)
    feed.kafka.kill()  # not in a transaction of changes, which would wait for Kafka as long as it may take
    with writing(feed):
        wait(lambda: "the run tries again" in run.text(), run)
        feed.kafka.start()
    check_published_by(run, feed)


@pytest.mark.extended
def test_a_run_goes_on_after_the_broker_has_aborted_its_transaction(continuous: Feed) -> None:
    """As after a broker that was down for nearly as long as transactions may take."""
    feed = continuous
    feed.settings["kafka"] = {
        "connection": "kafka_faults",
        "lease_seconds": 2,
        "transaction_seconds": 1,
        "transaction_timeout_seconds": 2,
    }
    run_for(feed, "10m")
    feed.write(3)
    run = feed.begin("in_open_transaction:2")
    write_until_held(feed, run)
    with closing(KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)) as admin:
        wait(lambda: state_of_transaction(admin, f"changefeed.{feed.name}.0") == "CompleteAbort", run)
    run.go_on()
    wait(lambda: has_rows(feed), run)
    assert "outlived its timeout" in run.text()
    check_published_by(run, feed)


def state_of_transaction(admin: KafkaAdminClient, name: str) -> str:
    return str(admin.describe_transactions([name])[name].state.value)


@pytest.mark.extended
def test_on_spark_a_run_that_is_killed_is_followed_by_one_that_repeats_nothing(
    continuous: Feed, spark_connect: SparkConnectServer
) -> None:
    feed = continuous
    run_for(feed, "10m")
    feed.use_connect(spark_connect.url)
    feed.write(3)
    first = feed.begin(spark=True)
    with writing(feed):
        wait(lambda: len(sealed(first)) > 3, first)
        first.kill()
        second = feed.begin(spark=True)
        wait(lambda: len(sealed(second)) > 3, second)
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.accounts MODIFY text VARCHAR(99)")
    feed.write(2)
    check_published_by(second, feed)


def check_goes_on_at_the_follower(run: Run, pair: Pair, feed: Feed) -> None:
    """Stop the source once ``run`` has published everything, and check that it publishes what the follower gets."""
    source, follower = pair
    try:
        wait(lambda: has_rows(feed), run)
        wait_until_caught_up(source, follower)
        source.stop()
        stop_replicating(follower)
        feed.mysql = follower  # writes go to the new source; the connection stays as it is
        feed.write(5)
        wait(lambda: has_rows(feed), run)
        assert "found again by GTID set" in run.text()
    finally:
        run.kill()
    publish_rest(feed)
    feed.check(one_server=False)


def begin_with_two_hosts(pair: Pair, feed: Feed) -> Run:
    """Begin a run whose connection has both servers of ``pair``, the source first, with rows to publish."""
    source, follower = pair
    feed.hosts = f"127.0.0.1:{source.port},127.0.0.1:{follower.port}"
    run_for(feed, "10m")
    feed.write(5)
    return feed.begin()


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MysqlServer], indirect=True, ids=["mysql"])
def test_a_run_goes_on_at_the_next_host_of_the_source_after_a_failover(pair: Pair, pair_feed: Feed) -> None:
    check_goes_on_at_the_follower(begin_with_two_hosts(pair, pair_feed), pair, pair_feed)


@pytest.mark.extended
def test_run_continues_at_the_next_host_when_that_has_caught_up(pair: Pair, pair_feed: Feed) -> None:
    """The first host fails while a replica has received its last transactions, and not applied them."""
    source, follower = pair
    feed = pair_feed
    run = begin_with_two_hosts(pair, feed)
    try:
        wait(lambda: has_rows(feed), run)
        wait_until_caught_up(source, follower)
        follower.execute("STOP REPLICA SQL_THREAD")
        feed.write(5)
        wait(lambda: has_rows(feed), run)
        wait(lambda: has_received_all(source, follower), run)
        source.stop()
        wait(lambda: "does not have transactions" in run.text(), run)
        follower.execute("START REPLICA SQL_THREAD")
        wait(lambda: "found again by GTID set" in run.text(), run)
        feed.mysql = follower
        feed.write(5)
        wait(lambda: has_rows(feed), run)
    finally:
        run.kill()
    publish_rest(feed)
    feed.check(one_server=False)


def has_received_all(source: SqlServer, follower: SqlServer) -> bool:
    """Whether the follower has all transactions of the source, in its relay log at least."""
    (executed,) = source.execute("SELECT @@GLOBAL.gtid_executed")[0]
    received = "SELECT received_transaction_set FROM performance_schema.replication_connection_status"
    (is_complete,) = follower.execute(
        f"SELECT GTID_SUBSET('{executed}', CONCAT_WS(',', @@GLOBAL.gtid_executed, ({received})))"
    )[0]
    return bool(is_complete)


@pytest.fixture
def handing_over(continuous: Feed) -> Feed:
    """A feed whose runs hand over to the next one, as those of Airflow do."""
    continuous.environment["CHANGEFEED_HANDOVER"] = "1"  # `inline_run` reads it
    run_for(continuous, "10m")
    return continuous


def write_until(feed: Feed, until: Callable[[], bool], run: Run) -> None:
    """Write further windows until the condition is true; ``run`` must go on."""

    def is_over() -> bool:
        feed.write(1)
        return until()

    wait(is_over, run)


def check_published_by(run: Run, feed: Feed) -> None:
    """Wait until ``run`` has published everything and end it, then check that all is there once."""
    wait(lambda: has_rows(feed), run)
    run.kill()
    run_bounded(feed)


def check_ended_by_handover(run: Run) -> None:
    assert run.result() == 0, run.text()
    assert "has taken over" in run.text()


@on_stock_servers_first
def test_the_next_run_takes_over_from_one_that_publishes(handing_over: Feed) -> None:
    """No window is lost, left out or published twice, and the older run ends with success, before its time."""
    feed = handing_over
    older = feed.begin()
    write_until(feed, lambda: len(sealed(older)) > 3, older)
    newer = feed.begin()
    write_until(feed, lambda: len(sealed(newer)) > 3, newer)
    check_ended_by_handover(older)
    wait(lambda: has_rows(feed), newer)
    newer.kill()
    assert sealed(newer)[0] in (sealed(older)[-1], sealed(older)[-1] + 1)
    assert sealed(newer)[1] > sealed(older)[-1], "the older run sealed at most the window that it had begun"
    run_bounded(feed)


@pytest.mark.long
@pytest.mark.extended
def test_an_idle_run_ends_when_the_next_one_has_taken_over(handing_over: Feed) -> None:
    feed = handing_over
    run_for(feed, "10s")
    feed.write(1)
    older = feed.begin()
    wait(lambda: has_rows(feed), older)
    newer = feed.begin()
    check_ended_by_handover(older)
    feed.write(1)
    check_published_by(newer, feed)


@pytest.mark.long
@pytest.mark.extended
def test_a_run_that_is_killed_before_it_takes_over_does_not_end_the_older_one(handing_over: Feed) -> None:
    feed = handing_over
    older = feed.begin()
    write_until(feed, lambda: len(sealed(older)) > 1, older)
    newer = feed.begin("before_log_write")
    write_until_held(feed, newer)
    newer.kill()
    feed.write(3)
    check_published_by(older, feed)


@pytest.mark.extended
def test_a_run_that_is_asked_to_end_before_it_takes_over_does_not_end_the_older_one(handing_over: Feed) -> None:
    """It is cancelled while its Spark starts, and Airflow has not ended it yet."""
    feed = handing_over
    older = feed.begin()
    write_until(feed, lambda: len(sealed(older)) > 1, older)
    feed.environment["CHANGEFEED_STOPPED"] = "1"  # `inline_run` reads it
    assert feed.begin().result() == 0
    feed.write(3)
    check_published_by(older, feed)


@pytest.mark.extended
@pytest.mark.parametrize("stage", ["in_open_transaction", "before_seal", "after_seal"])
def test_a_run_that_is_killed_in_its_first_window_loses_nothing(handing_over: Feed, stage: str) -> None:
    feed = handing_over
    older = feed.begin()
    write_until(feed, lambda: len(sealed(older)) > 1, older)
    newer = feed.begin(stage)
    write_until(feed, newer.file.exists, newer)
    newer.kill()
    feed.write(3)
    check_ended_by_handover(older)
    third = feed.begin()
    check_published_by(third, feed)


@pytest.mark.extended
def test_a_run_that_slept_while_another_took_over_ends_with_success(handing_over: Feed) -> None:
    feed = handing_over
    feed.write(3)
    asleep = feed.begin("before_log_write:6")
    write_until_held(feed, asleep)
    os.kill(asleep.process.pid, signal.SIGSTOP)
    newer = feed.begin()
    feed.write(3)
    wait(lambda: has_rows(feed), newer)
    asleep.go_on()
    os.kill(asleep.process.pid, signal.SIGCONT)
    write_until(feed, lambda: asleep.process.poll() is not None, newer)
    check_ended_by_handover(asleep)
    check_published_by(newer, feed)


@pytest.mark.extended
def test_a_run_that_ends_at_a_position_succeeds_if_a_continuous_one_has_published(handing_over: Feed) -> None:
    feed = handing_over
    feed.write(3)
    older = feed.begin()
    wait(lambda: has_rows(feed), older)
    os.kill(older.process.pid, signal.SIGSTOP)  # it publishes nothing while the other run is planned
    feed.write(5)
    planned = json.loads(feed.command("plan", feed.name, "--json").stdout)["window"]
    os.kill(older.process.pid, signal.SIGCONT)
    wait(lambda: has_rows(feed), older)
    bounded = feed.begin(windows=[planned])
    assert bounded.result() == 0, bounded.text()
    assert "publishes the rest" in bounded.text()
    older.kill()
    run_bounded(feed)
