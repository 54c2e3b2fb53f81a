"""Freshness: the seconds from a commit to Kafka that a pipeline reports, beside those that a consumer measures."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from faults.feed import NOTHING_NEW, Feed
from long_form import long

from devstack.port import free_port

TOLERANCE = 2.0
"""Seconds by which the figure may differ from the consumer's: the seal is written after the records, on a slow machine
later than they are read. On MariaDB a commit's time has whole seconds."""
PAUSE_SECONDS = 2 * TOLERANCE


@pytest.fixture(params=["feed", *long("mariadb_feed")])
def measured(request: pytest.FixtureRequest) -> Feed:
    return request.getfixturevalue(request.param)


def freshness(feed: Feed) -> Any:
    """What `changefeed status --json` has of the last hour."""
    run = feed.fork_command("", "status", feed.name, "--json")
    assert run.result() == 0, run.text()
    (status,) = json.loads(run.text())
    return status["freshness"]


def insert(feed: Feed, *keys: int, wait_seconds: float = 0.0) -> None:
    with feed.mysql.connect(database=feed.name) as connection, connection.cursor() as cursor:
        for key in keys:
            cursor.execute("INSERT INTO accounts VALUES (%s, 1, 'x')", (key,))
            time.sleep(wait_seconds)


class Consumer:
    """Reads a topic with `read_committed`, and remembers when each record could be read."""

    def __init__(self, feed: Feed) -> None:
        self._consumer = kafka.KafkaConsumer(
            f"{feed.name}.accounts",
            bootstrap_servers=feed.kafka.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            group_id=None,
            fetch_max_wait_ms=20,
        )
        self.read_at: dict[int, float] = {}

    def read_until(self, key: int, seconds: float = 60) -> None:
        """Read until the record of ``key`` is there."""
        deadline = time.monotonic() + seconds
        while key not in self.read_at:
            assert time.monotonic() < deadline, f"no record of {key}"
            for records in self._consumer.poll(timeout_ms=50).values():
                for record in records:
                    if record.value is not None:
                        self.read_at[json.loads(record.value)["after"]["id"]] = time.time()

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def consumer(measured: Feed) -> Iterator[Consumer]:
    insert(measured, 0)
    measured.run()  # the topics
    reader = Consumer(measured)
    reader.read_until(0)
    yield reader
    reader.close()


def test_figure_is_that_of_a_consumer_also_after_a_pause(measured: Feed, consumer: Consumer) -> None:
    """The changes before a pause waited longest, and the figure is theirs."""
    committed = time.time()
    insert(measured, 1, wait_seconds=PAUSE_SECONDS)
    insert(measured, 2)
    run = measured.begin()
    consumer.read_until(2)
    assert run.result() == 0, run.text()
    consumers = consumer.read_at[1] - committed
    assert consumers > PAUSE_SECONDS
    shown = freshness(measured)
    assert shown["tables"][f"{measured.name}.accounts"] == pytest.approx(consumers, abs=TOLERANCE)
    assert shown["p99_seconds"] >= shown["tables"][f"{measured.name}.accounts"]
    assert shown["p99_seconds"] >= shown["p50_seconds"] > 0
    assert shown["windows"] == 2
    printed = measured.fork_command("", "status", measured.name)
    assert printed.result() == 0
    assert f"readable {shown['p50_seconds']:.1f} s after commit" in " ".join(printed.text().split())


@pytest.mark.extended
def test_figure_of_a_continuous_run_is_that_of_a_consumer(measured: Feed, consumer: Consumer) -> None:
    measured.settings["windows"] = {"every": "100ms", "run_for": "20s"}
    measured.configure()
    run = measured.begin()
    for key in range(1, 6):
        committed = time.time()
        insert(measured, key)
        consumer.read_until(key)
    waited = consumer.read_at[5] - committed
    assert run.result() == 0, run.text()
    shown = freshness(measured)
    assert shown["windows"] == 6
    assert shown["tables"][f"{measured.name}.accounts"] == pytest.approx(waited, abs=TOLERANCE)


@pytest.mark.extended
def test_idle_pipeline_and_one_with_ddl_alone_have_no_freshness(feed: Feed) -> None:
    assert feed.begin().result() in (0, NOTHING_NEW)
    assert freshness(feed) is None
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.accounts ADD COLUMN more INT")
    feed.run()
    assert freshness(feed) is None


@pytest.mark.extended
def test_rows_prepared_in_an_earlier_window_count_from_their_xa_commit(feed: Feed) -> None:
    with feed.mysql.connect(database=feed.name) as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO accounts VALUES (7, 1, 'x')", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
    feed.run()
    assert freshness(feed) is None
    time.sleep(2.0)
    before = time.time()
    feed.mysql.execute("XA COMMIT 'x'")
    feed.run()
    assert 0 < freshness(feed)["tables"][f"{feed.name}.accounts"] < time.time() - before + TOLERANCE


@pytest.mark.extended
def test_backfill_does_not_count(feed: Feed) -> None:
    insert(feed, 1)
    feed.run()
    before = freshness(feed)
    time.sleep(2.0)
    done = feed.fork_command(
        "", "backfill", feed.name, "--from-file", feed.mysql.head().partition(":")[0], "--suffix", ".again"
    )
    assert done.result() == 0, done.text()
    assert freshness(feed) == before


@pytest.mark.long
def test_status_without_kafka_has_a_state_and_says_why_freshness_is_not_known(feed: Feed) -> None:
    """It waits ten seconds for Kafka."""
    insert(feed, 1)
    feed.run()
    feed.kafka_port = free_port()
    run = feed.fork_command("", "status", feed.name)
    assert run.result() == 0, run.text()
    assert "freshness not known" in run.text()
    assert "BrokerUnavailableError" in run.text()
