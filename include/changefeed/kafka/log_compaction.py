"""Sees to it that Kafka compacts a commit log early, also one that changefeed did not create.

A commit log gets some records for each window, and each reader reads all of it. With the broker's defaults the newest
gigabyte is never compacted, and nothing is until half of the log is obsolete.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kafka.admin import ConfigResource, ConfigResourceType

from changefeed.errors import ChangefeedError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import commit_log_settings

_log = logging.getLogger(__name__)

_SETTINGS = ("segment.bytes", "segment.ms", "min.cleanable.dirty.ratio", "delete.retention.ms")
_OF_TOPIC = "DYNAMIC_TOPIC_CONFIG"
"""Kafka's name for the source of a setting that the topic itself has."""


@dataclass(frozen=True)
class LateSetting:
    """A setting with which Kafka compacts a commit log later than with ``expected``."""

    name: str
    found: str
    expected: str
    is_of_topic: bool
    """Whether the topic has it, not the broker: somebody chose it for this topic."""

    def __str__(self) -> str:
        return f"{self.name}={self.found}, expected at most {self.expected}"


def late_settings(connection: KafkaConnection, topic: str) -> list[LateSetting]:
    """The settings with which Kafka compacts ``topic`` late; [] without the ACL DescribeConfigs, or for a missing
    topic. Raises BrokerUnavailableError."""
    expected = commit_log_settings().configs
    with connection.admin() as admin:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, list(_SETTINGS))
        found = dict(admin.describe_configs([asked], config_filter="all")).get("topic", {}).get(topic, {})
    return [
        LateSetting(name, str(found[name]["value"]), expected[name], found[name]["config_source"] == _OF_TOPIC)
        for name in _SETTINGS
        if name in found and found[name]["value"] is not None and float(found[name]["value"]) > float(expected[name])
    ]


def compact_early(connection: KafkaConnection, topic: str, *, alter: bool = True) -> None:
    """Set the settings of ``topic`` with which Kafka compacts it early, in place of later ones of the broker. Settings
    that somebody chose for the topic stay.

    Without ``alter``, or if the broker does not do it, a warning is logged: runs work, only slower.
    """
    try:
        late = [setting for setting in late_settings(connection, topic) if not setting.is_of_topic]
        if not late:
            return
        answer = _alter(connection, topic, late) if alter else "`topics.create` is false"
    except ChangefeedError as error:
        _log.warning("whether Kafka compacts commit log %r early is not known: %s", topic, error)
        return
    if answer == "OK":
        _log.info("commit log %r is compacted early from now on, instead of with %s", topic, "; ".join(map(str, late)))
    else:
        _log.warning("%s Nothing was changed: %s", describe_late(topic, late), answer)


def _alter(connection: KafkaConnection, topic: str, late: list[LateSetting]) -> str:
    """The broker's answer: "OK", or why it refuses the settings that are expected."""
    configs = {setting.name: setting.expected for setting in late}
    with connection.admin() as admin:
        altered = [ConfigResource(ConfigResourceType.TOPIC, topic, configs)]
        return str(admin.alter_configs(altered, raise_on_unknown=False, incremental=True)["topic"][topic])


def describe_late(topic: str, late: list[LateSetting]) -> str:
    """A warning text for the settings ``late`` of commit log ``topic``."""
    configs = ",".join(f"{setting.name}={setting.expected}" for setting in late)
    return (
        f"Kafka compacts commit log {topic!r} late ({'; '.join(map(str, late))}), so that it grows with each window, "
        "and each run and command takes longer to read it. Set them with `kafka-configs.sh --alter --entity-type "
        f"topics --entity-name {topic} --add-config {configs}`."
    )
