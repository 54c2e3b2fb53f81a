"""Topics for decoding alone, where no Kafka is."""

from __future__ import annotations

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import TopicLimits, TopicSettings
from changefeed.kafka.window_topics import WindowTopics


class AnyTopics(WindowTopics):
    """Each topic is there, and has three partitions."""

    def __init__(self) -> None:
        super().__init__(KafkaConnection("127.0.0.1:1"), {})

    def ensure(self, topic: str, settings: TopicSettings) -> TopicLimits:  # noqa: ARG002 - as it is there
        return self.of(topic)

    def of(self, topic: str) -> TopicLimits:
        return self.known.setdefault(topic, TopicLimits(3))
