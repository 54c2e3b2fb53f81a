"""The heartbeat of a pipeline: a record a run, also of a run that finds nothing new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.feed import NOTHING_NEW, Feed, Runner, fresh_feed
from integration.topic_rows import records_of, topics_of

from changefeed.model.topic_name import heartbeat_topic
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.stop()


@pytest.fixture
def feed(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    with fresh_feed(full_mysql_server, kafka_broker, unique_name, tmp_path, runner) as feed:
        yield feed


def run(feed: Feed) -> int:
    """Run the command `changefeed run`; returns its exit code."""
    done = feed.fork_command("", "run", feed.name)
    code = done.result()
    assert code in (0, NOTHING_NEW), done.text()[-4000:]
    return code


def heartbeats(feed: Feed) -> list[dict[str, Any]]:
    records = records_of(feed.kafka.bootstrap, heartbeat_topic(feed.name))
    assert {record.key for record in records} <= {json.dumps({"pipeline": feed.name}).encode()}
    return [json.loads(record.value) for record in records]


def head(feed: Feed) -> str:
    return feed.mysql.head()


def test_each_run_writes_its_position_and_idle_runs_that_nothing_is_new(feed: Feed) -> None:
    feed.settings["heartbeat"] = True
    feed.configure()
    feed.write(5)
    assert run(feed) == 0
    assert run(feed) == NOTHING_NEW
    assert run(feed) == NOTHING_NEW
    committed, *idle = heartbeats(feed)
    assert [committed["state"], *(each["state"] for each in idle)] == ["committed", "idle", "idle"]
    for each in (committed, *idle):
        assert (each["pipeline"], each["window"]) == (feed.name, 1)
        assert f"{each['file']}:{each['position']}" == head(feed)
        assert each["gtids"], "the server has GTIDs"
        assert each["gtids"] == committed["gtids"]
    assert committed["read_ms"] is None, "the source may have had later changes"
    assert committed["written_ms"] < idle[0]["read_ms"] < idle[0]["written_ms"] < idle[1]["read_ms"]
    feed.write(20)  # one alone may delete no row, and write nothing
    assert run(feed) == 0
    assert (heartbeats(feed)[-1]["state"], heartbeats(feed)[-1]["window"]) == ("committed", 2)
    feed.check()


def test_pipeline_without_the_setting_writes_nothing_when_idle(feed: Feed) -> None:
    feed.write(20)
    assert run(feed) == 0
    topics = topics_of(feed.kafka.bootstrap, f"changefeed.{feed.name}")
    before = {topic: len(records_of(feed.kafka.bootstrap, topic)) for topic in topics}
    assert run(feed) == NOTHING_NEW
    assert heartbeat_topic(feed.name) not in topics
    assert {topic: len(records_of(feed.kafka.bootstrap, topic)) for topic in topics} == before
