"""Kafka compacts a commit log early, also one that somebody else created."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_compaction import compact_early, late_settings
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics
from devstack.kafka import KafkaBroker

DEFAULTS = {"cleanup.policy": "compact"}


@pytest.fixture
def connection(kafka_broker: KafkaBroker) -> KafkaConnection:
    return KafkaConnection(kafka_broker.bootstrap)


def create(connection: KafkaConnection, topic: str, configs: Mapping[str, str]) -> str:
    ensure_topics(connection, {topic: TopicSettings(1, 1, configs)})
    return topic


def test_log_with_the_brokers_defaults_is_compacted_early_afterwards(
    connection: KafkaConnection, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    topic = create(connection, unique_name, DEFAULTS)
    assert {setting.name for setting in late_settings(connection, topic)} >= {"segment.bytes", "segment.ms"}
    compact_early(connection, topic)
    assert late_settings(connection, topic) == []
    assert "segment.bytes=1073741824, expected at most 4194304" in caplog.text
    caplog.clear()
    compact_early(connection, topic)
    assert "compacted" not in caplog.text


def test_setting_of_the_topic_itself_stays(connection: KafkaConnection, unique_name: str) -> None:
    topic = create(connection, unique_name, {**DEFAULTS, "segment.bytes": str(64 << 20)})
    compact_early(connection, topic)
    (left,) = late_settings(connection, topic)
    assert str(left) == "segment.bytes=67108864, expected at most 4194304"
    assert left.is_of_topic


def test_pipeline_that_creates_no_topics_changes_none_and_warns(
    connection: KafkaConnection, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create(connection, unique_name, DEFAULTS)
    compact_early(connection, topic, alter=False)
    assert len(late_settings(connection, topic)) >= 3
    assert f"--entity-name {topic} --add-config segment.bytes=4194304" in caplog.text
    assert "Nothing was changed: `topics.create` is false" in caplog.text


def test_own_settings_and_missing_logs_are_left_alone(connection: KafkaConnection, unique_name: str) -> None:
    topic = create(connection, unique_name, commit_log_settings(1).configs)
    assert late_settings(connection, topic) == []
    assert late_settings(connection, f"{unique_name}.missing") == []
    compact_early(connection, f"{unique_name}.missing")
