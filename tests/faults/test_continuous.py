"""A continuous run: windows one after another in one process, and what may happen between them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from both_settings import on_stock_servers_first
from faults.conftest import Pair
from faults.feed import NOTHING_NEW, TABLES, Feed, Run
from faults.proxy import Proxy
from faults.replica import stop_replicating, wait_until_caught_up
from integration.topic_rows import select_rows, topic_rows

from changefeed.model.fault_point import STAGES
from changefeed.operations.status import status
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import read_pipeline
from changefeed.state.table_store import TableCheckpointStore
from devstack.mysql import MysqlServer

pytestmark = pytest.mark.timeout(600)

SECONDS = 120.0
LATER_STAGES = [
    pytest.param(stage, marks=[] if stage == "before_seal" else pytest.mark.extended)
    for stage in STAGES
    if stage != "before_first_checkpoint"
]
"""Stages that a run reaches for each window."""


@pytest.fixture
def continuous(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A feed whose runs publish windows for ten seconds. Those that have not ended after the test are killed."""
    begun: list[Run] = []
    begin = feed.begin

    def begin_and_remember(fault: str = "", **options: Any) -> Run:
        begun.append(begin(fault, **options))
        return begun[-1]

    monkeypatch.setattr(feed, "begin", begin_and_remember)
    run_for(feed, "10s")
    yield feed
    for run in begun:
        if run.process.poll() is None:
            run.kill()


def run_for(feed: Feed, time: str) -> None:
    """Change how long the next runs go on."""
    feed.settings["windows"] = {"every": "100ms", "run_for": time}
    feed.configure()


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


def has_rows(feed: Feed) -> bool:
    """Whether the topics have the rows of the tables."""
    return all(topic_rows(feed.records(table)) == select_rows(feed.mysql, feed.name, table) for table in TABLES)


def sealed(run: Run) -> list[int]:
    """The numbers of the windows that the run has sealed; [0] before the first."""
    return [int(number) for number in re.findall(r"^sealed window (\d+)", run.text(), re.MULTILINE)] or [0]


def repeated(feed: Feed) -> set[str]:
    """The events that the topics have twice; none has them more often."""
    counts = Counter(feed.ids())
    assert max(counts.values()) <= 2
    return {event for event, count in counts.items() if count == 2}


def checkpoint_window(feed: Feed) -> int:
    found = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert found is not None
    return found.window


def shown_window(feed: Feed) -> int:
    """The number of the window that a status shows as the last one."""
    environment, pipeline = feed.env(), read_pipeline(feed.folder / "pipelines" / f"{feed.name}.yaml")
    connections = PipelineConnections(pipeline, lambda name: environment[f"AIRFLOW_CONN_{name.upper()}"])
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
    wait(lambda: has_rows(feed), run)
    number = sealed(run)[-1]
    assert number >= 2
    assert shown_window(feed) >= number, "the status is that of the last window, not of the checkpoint"
    wait(lambda: checkpoint_window(feed) == sealed(run)[-1], run)
    run.kill()
    run_bounded(feed)


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
    before = checkpoint_window(continuous)
    run_for(continuous, "10s")
    run = continuous.begin()
    assert run.result() == 0, run.text()
    assert (sealed(run), checkpoint_window(continuous)) == ([0], before)


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
def test_a_seek_goes_between_two_windows_and_the_run_goes_on_after_it(continuous: Feed) -> None:
    feed = continuous
    run_for(feed, "10m")
    start = str(feed.settings["start"])
    feed.write(3)
    run = feed.begin()
    wait(lambda: has_rows(feed) and checkpoint_window(feed) == sealed(run)[-1], run)
    seek = feed.fork_command("", "seek", feed.name, start, "--why", "a test", "--yes")
    assert seek.result() == 0, seek.text()
    once = set(feed.ids())
    feed.write(2)
    wait(lambda: repeated(feed) == once and len(set(feed.ids())) > len(once), run)
    run.kill()
    publish_rest(feed)
    assert repeated(feed) == once, "the seek back publishes each earlier change once more, and no other"


@pytest.mark.extended
def test_a_seek_succeeds_if_the_run_commits_what_it_has_recorded(continuous: Feed) -> None:
    """The seek's record decides: the task of the run may move the checkpoint before the seek does."""
    feed = continuous
    run_for(feed, "10m")
    start = str(feed.settings["start"])
    feed.write(3)
    run = feed.begin()
    wait(lambda: has_rows(feed) and checkpoint_window(feed) == sealed(run)[-1], run)
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
        wait(lambda: has_rows(feed), run)
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
    time.sleep(2)
    feed.write(3)
    mysql_proxy.mend()
    wait(lambda: has_rows(feed), run)
    assert "the run tries again" in run.text()
    run.kill()
    run_bounded(feed)


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MysqlServer], indirect=True, ids=["mysql"])
def test_a_run_goes_on_at_the_next_host_of_the_source_after_a_failover(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    feed = pair_feed
    feed.hosts = f"127.0.0.1:{source.port},127.0.0.1:{follower.port}"
    run_for(feed, "10m")
    feed.write(5)
    run = feed.begin()
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
