"""Topics are made up front, by many at once if need be, and a refusal has the broker's words."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from changefeed.errors import TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import (
    PartitionContents,
    TopicSettings,
    commit_log_settings,
    ensure_topics,
    partition_contents,
    topic_limits,
)
from devstack.kafka import KafkaBroker


@pytest.fixture
def connection(kafka_broker: KafkaBroker) -> KafkaConnection:
    return KafkaConnection(kafka_broker.bootstrap)


def test_missing_topics_are_made_and_present_ones_used_as_they_are(
    connection: KafkaConnection, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = (f"{unique_name}.{name}" for name in ("one", "two", "three"))
    assert ensure_topics(connection, {one: TopicSettings(3, 1), two: TopicSettings(2, 1)}) == {one: 3, two: 2}
    expected = {one: TopicSettings(2), two: TopicSettings(5), three: TopicSettings(1, 1, {"retention.ms": "60000"})}
    with caplog.at_level(logging.WARNING):
        assert ensure_topics(connection, expected) == {one: 3, two: 2, three: 1}
    assert f"{two!r} has 2 partitions, expected 5" in caplog.text


def test_contents_are_those_of_any_writer(connection: KafkaConnection, unique_name: str) -> None:
    filled, empty = f"{unique_name}.filled", f"{unique_name}.empty"
    ensure_topics(connection, {filled: TopicSettings(2, 1), empty: TopicSettings(1, 1)})
    producer = kafka.KafkaProducer(bootstrap_servers=connection.bootstrap)
    for newest_ms in (1_700_000_000_000, 1_600_000_000_000):
        producer.send(filled, b"row", partition=1, timestamp_ms=newest_ms)
    producer.close()
    assert partition_contents(connection, [filled, empty, f"{unique_name}.missing"]) == [
        PartitionContents(empty, 0, 0, 0, None),
        PartitionContents(filled, 0, 0, 0, None),
        PartitionContents(filled, 1, 0, 2, 1_700_000_000_000),
    ]


def test_many_runs_make_the_same_topics_at_once(connection: KafkaConnection, unique_name: str) -> None:
    expected = {f"{unique_name}.{number}": TopicSettings(2, 1) for number in range(5)}
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: ensure_topics(connection, expected), range(6)))
    assert found == [dict.fromkeys(expected, 2)] * 6


def test_more_topics_than_one_request_may_make_are_made(connection: KafkaConnection, unique_name: str) -> None:
    """Kafka refuses a request of more than 10,000 records: a topic, each of its partitions and each config are one."""
    configs = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "1000",
        "file.delete.delay.ms": "1000",
        "flush.messages": "10000",
        "flush.ms": "1000",
        "index.interval.bytes": "4096",
        "max.compaction.lag.ms": "100000",
        "max.message.bytes": "100000",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "1000000",
        "segment.bytes": "1048576",
        "segment.index.bytes": "4096",
        "segment.jitter.ms": "0",
        "segment.ms": "1000000",
        "unclean.leader.election.enable": "false",
    }
    settings = TopicSettings(1, 1, configs)
    expected = {f"{unique_name}.{number}": settings for number in range(10_000 // (2 + len(configs)) + 1)}
    assert ensure_topics(connection, expected) == dict.fromkeys(expected, 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (TopicSettings(1, 3), "replication factor"),
        (TopicSettings(1, 1, {"retention.msec": "1"}), "Unknown topic config name: retention.msec"),
    ],
)
def test_a_refusal_has_the_brokers_words(
    connection: KafkaConnection, unique_name: str, settings: TopicSettings, words: str
) -> None:
    with pytest.raises(TopicError, match=words) as refused:
        ensure_topics(connection, {unique_name: settings})
    assert unique_name in str(refused.value)


def test_topics_that_differ_only_in_dot_and_underscore_are_refused_by_the_broker_too(
    connection: KafkaConnection, unique_name: str
) -> None:
    ensure_topics(connection, {f"{unique_name}.a": TopicSettings(1, 1)})
    with pytest.raises(TopicError, match="collides"):
        ensure_topics(connection, {f"{unique_name}_a": TopicSettings(1, 1)})


def test_the_commit_log_is_compacted_in_one_partition(connection: KafkaConnection, unique_name: str) -> None:
    assert ensure_topics(connection, {unique_name: commit_log_settings(1)}) == {unique_name: 1}
    with connection.admin() as admin:
        asked = [ConfigResource(ConfigResourceType.TOPIC, unique_name)]
        configs = admin.describe_configs(asked, config_filter="all")["topic"][unique_name]
    assert configs["cleanup.policy"]["value"] == "compact"
    assert configs["compression.type"]["value"] == "uncompressed"


def test_limits_are_the_topics_own(connection: KafkaConnection, unique_name: str) -> None:
    ensure_topics(connection, {unique_name: TopicSettings(2, 1, {"max.message.bytes": "5000"})})
    limits = topic_limits(connection, [unique_name], {unique_name: "shop.orders"})[unique_name]
    assert (limits.partitions, limits.max_message_bytes, limits.table) == (2, 5000, "shop.orders")
    with pytest.raises(TopicError, match="no-such-topic"):
        topic_limits(connection, ["no-such-topic"])


def test_a_broker_that_is_there_answers_soon(connection: KafkaConnection) -> None:
    begun = time.monotonic()
    assert connection.broker_count() == 1
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("configs", "keeps_ms"),
    [
        ({"retention.ms": "7200000"}, 3_600_000),
        ({"retention.ms": "7200000", "cleanup.policy": "compact"}, None),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": "-1", "message.timestamp.before.max.ms": "7200000"}, 3_600_000),
        ({"retention.ms": "7200000", "message.timestamp.before.max.ms": "3600000"}, 1_800_000),
    ],
)
def test_records_may_be_half_as_old_as_their_topic_keeps_or_takes(
    kafka_broker: KafkaBroker, unique_name: str, configs: dict[str, str], keeps_ms: int | None
) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap)
    ensure_topics(connection, {unique_name: TopicSettings(1, 1, configs)})
    assert topic_limits(connection, [unique_name])[unique_name].keeps_ms == keeps_ms
