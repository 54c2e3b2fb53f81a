"""A commit log after many windows is read as fast as after few: its readers find as many records."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from faults.feed import Feed
from faults.test_verify import connections_of
from sealed_windows import MemoryLog, Windows, produce

from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.commit_log.merged_freshness import FreshnessRecord
from changefeed.kafka.commit_log.owned_log import KEPT_CONTINUOUS_SEALS, KEPT_SEAL_BYTES, KEPT_SEALS
from changefeed.kafka.commit_log.periods import KEPT_HOURS, KEPT_PERIOD_BYTES, PeriodRecord, latest_periods
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_compaction import late_settings
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics
from changefeed.model.freshness import SLOT_MS
from changefeed.model.sealed_period import HOUR_MS
from changefeed.model.topic_name import commit_log_topic
from changefeed.pipeline.windows import read_freshness
from changefeed_web.position import windows_in

pytestmark = pytest.mark.timeout(900)

FEW = 1000
TEST_MS = 240_000
"""More than the windows take to be written and read, in which the last hour begins later."""


@dataclass(frozen=True)
class Case:
    """The number of windows, the milliseconds from one to the next, the kept seals, and how many windows come in hours
    from the beginning."""

    count: int
    every_ms: int
    keep: int
    in_hours: int = 0

    def seal(self, feed: Feed) -> MemoryLog:
        """The log after the windows."""
        uuid = str(feed.mysql.execute("SELECT @@server_uuid")[0][0])
        first_ms = int(time.time() * 1000) - self.count * self.every_ms
        tables = tuple(f"{feed.name}.{table}" for table in ("accounts", "journal"))
        windows, log = Windows(feed.name, uuid, first_ms, self.every_ms, tables), MemoryLog(feed.name, first_ms)
        if self.in_hours:
            windows.write_hours(log, 1, self.in_hours)
        windows.write(log, range(self.in_hours + 1, self.count + 1), self.keep)
        return log


def write_log(feed: Feed, log: MemoryLog) -> CommitLog:
    """The commit log in Kafka, compacted."""
    connection, topic = KafkaConnection(feed.kafka.bootstrap), commit_log_topic(feed.name)
    configs = {**commit_log_settings().configs, "message.timestamp.type": "CreateTime"}
    ensure_topics(connection, {topic: TopicSettings(1, 1, configs)})
    produce(connection.bootstrap, topic, log.live)
    return CommitLog(connection, topic, feed.name)


def command(feed: Feed, *arguments: str) -> str:
    done = feed.command(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.extended
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(20_000, 300_000, KEPT_SEALS, 18_000), id="20000"),
        pytest.param(Case(10_000_000, 1000, KEPT_CONTINUOUS_SEALS, 9_994_000), id="10000000", marks=pytest.mark.long),
    ],
)
def test_log_of_many_windows_is_read_as_one_of_few(feed: Feed, case: Case) -> None:
    few, log = Case(FEW, case.every_ms, case.keep).seal(feed), case.seal(feed)
    commit_log = write_log(feed, log)
    state = commit_log.read()
    periods, few_periods = (len(one.state.of(PeriodRecord)) for one in (log, few))
    freshness, few_freshness = (len(one.state.of(FreshnessRecord)) for one in (log, few))
    assert periods < KEPT_HOURS + 24 + case.count * case.every_ms / 1000 / 86_400
    assert len(state.seals) - len(few.state.seals) <= case.keep * 11 // 10 - min(case.keep, FEW)
    rest = len(state.entries) - len(state.seals) - periods - freshness
    assert rest == len(few.live) - len(few.state.seals) - few_periods - few_freshness, "nothing else grows"
    assert sum(len(record.value or b"") for record in log.live) < 1.1 * KEPT_SEAL_BYTES + KEPT_PERIOD_BYTES

    shown = read_freshness(connections_of(feed))
    assert shown is not None
    assert 0 <= HOUR_MS // case.every_ms - shown.windows <= 1 + (SLOT_MS + TEST_MS) // case.every_ms
    assert (shown.p50_seconds, shown.p99_seconds) == pytest.approx((0.5, 0.5), rel=0.1)
    assert shown.tables.keys() == {f"{feed.name}.accounts", f"{feed.name}.journal"}

    assert json.loads(command(feed, "recover", feed.name, "--json"))["now"]["window"] == case.count
    command(feed, "seek", feed.name, "latest", "--why", "the windows are made up", "--yes")
    feed.write(5)
    feed.run_until_current()
    feed.check()

    state = commit_log.read()
    merged = latest_periods(state, 10_000)
    assert sum(one.windows for one in merged) + len(state.seals) == case.count + 1
    assert max(state.seals) == case.count + 2, "a seek takes a number too"
    assert len(windows_in(state)) == len(state.seals)
    assert (merged[-1].first, merged[0].last) == (1, min(state.seals) - 1)
    assert {one.hours for one in merged} == {1, 24}
    for newer, older in pairwise(merged):
        assert (newer.first, newer.start) == (older.last + 1, older.head)

    listed = json.loads(command(feed, "windows", feed.name, "--merged", "-n", "3", "--json"))
    assert [one["last"] for one in listed] == [one.last for one in merged[:3]]
    text = command(feed, "windows", feed.name, "-n", "2")
    assert "Older windows, merged by the hour or day in which they were sealed:" in text
    assert f"{merged[1].first} to {merged[1].last}" in text


@pytest.mark.extended
@pytest.mark.parametrize("stage", ["before_log_write:3", "in_open_transaction", "before_seal", "after_seal"])
def test_run_killed_around_a_seal_loses_and_repeats_no_merged_window(feed: Feed, stage: str) -> None:
    """The next seal is the first that merges others."""
    case = Case(KEPT_SEALS * 11 // 10 - 1, 60_000, KEPT_SEALS)
    commit_log = write_log(feed, case.seal(feed))
    command(feed, "recover", feed.name)
    command(feed, "seek", feed.name, "latest", "--why", "the windows are made up", "--yes")
    feed.write(5)
    feed.run_until_current()
    assert latest_periods(commit_log.read(), 10) == [], "the log is full"
    feed.write(5)
    run = feed.begin(stage)
    assert run.wait_until_held()
    run.kill()
    feed.write(5)
    feed.run_until_current()
    feed.check()
    state = commit_log.read()
    merged = latest_periods(state, 10)
    assert merged[-1].first == 1
    assert sum(one.windows for one in merged) == merged[0].last == min(state.seals) - 1
    assert sum(one.row_count for one in merged) == 20 * merged[0].last


@pytest.mark.extended
def test_window_that_a_seek_publishes_again_is_counted_again(feed: Feed) -> None:
    """Merged records count what was published, as the windows do: nothing that a seek does forgets a window."""
    commit_log = write_log(feed, Case(KEPT_SEALS * 11 // 10, 60_000, KEPT_SEALS).seal(feed))
    command(feed, "recover", feed.name)
    command(feed, "seek", feed.name, "latest", "--why", "the windows are made up", "--yes")
    start = feed.mysql.head()
    feed.write(5)
    feed.run_until_current()
    before = commit_log.read()
    command(feed, "seek", feed.name, start, "--why", "published again", "--yes")
    assert latest_periods(commit_log.read(), 10) == latest_periods(before, 10) != []
    feed.run_until_current()
    state = commit_log.read()
    again, once = state.seals[max(state.seals)], state.seals[max(before.seals)]
    assert (again.rows, again.window.start) == (once.rows, once.window.start)
    assert sum(one.windows for one in latest_periods(state, 10)) + len(state.seals) == 112


@pytest.mark.extended
def test_continuous_run_has_kafka_compact_a_log_that_somebody_else_created(feed: Feed) -> None:
    connection, topic = KafkaConnection(feed.kafka.bootstrap), commit_log_topic(feed.name)
    ensure_topics(connection, {topic: TopicSettings(1, 1, {"cleanup.policy": "compact"})})
    feed.settings["windows"] = {"every": "1s", "run_for": "10s"}
    feed.configure()
    feed.write(1)
    assert "Kafka compacts commit log" in feed.command("check", feed.name).stdout
    assert late_settings(connection, topic)
    feed.run()
    assert late_settings(connection, topic) == []
    assert "Kafka compacts commit log" not in feed.command("check", feed.name).stdout
    feed.check()
