"""The topics that a window's messages go to, as they were when its first message was published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from changefeed.errors import TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.topics import TopicLimits, TopicSettings, ensure_topics, topic_limits


class WindowTopics:
    """``known`` topics, those that the driver made sure of, and on demand those of tables that only the binlog has.

    A key's partition follows from its topic's number of partitions, so Kafka is always asked for that number.
    """

    def __init__(self, connection: KafkaConnection, settings: TopicSettings, known: Mapping[str, TopicLimits]) -> None:
        self._connection, self._settings = connection, settings
        self.known = dict(known)

    def of(self, topic: str) -> TopicLimits:
        """What ``topic`` takes; it is made where it is not there. Raises as `ensure_topics` does."""
        if topic not in self.known:
            ensure_topics(self._connection, {topic: self._settings})
            self.known |= topic_limits(self._connection, [topic])
        return self.known[topic]

    def make_sure(self, topics: Iterable[str]) -> None:
        """Have all of ``topics`` among the known ones."""
        for topic in topics:
            self.of(topic)


def as_begun(
    limits: Mapping[str, TopicLimits], given: Mapping[TopicPartition, Progress], window: int
) -> dict[str, TopicLimits]:
    """``limits`` with the partitions that each topic had when ``window`` was begun, by what it was ``given`` since.

    Partitions that were added meanwhile get messages from the next window on. Raises TopicError for a topic that has
    fewer partitions than the window began with.
    """
    begun = dict(limits)
    for (topic, _), progress in given.items():
        if progress.window != window or not progress.partitions or topic not in limits:
            continue
        if limits[topic].partitions < progress.partitions:
            raise TopicError(
                f"topic {topic!r} had {progress.partitions} partitions when window {window} was begun, and has "
                f"{limits[topic].partitions}: it was removed and made again. What was published of the window before "
                "is gone. Nothing more was published. Backfill what the topic held, or `changefeed prune --topic`, "
                "which forgets what it was given, and run again."
            )
        begun[topic] = replace(limits[topic], partitions=progress.partitions)
    return begun


def check_same_topic(topic: str, limits: TopicLimits | None, given: Mapping[int, Progress]) -> None:
    """Raises TopicError where ``topic`` is not the one that was ``given`` messages before, by partition.

    ``limits`` is None where there is no such topic.
    """
    known = {progress.topic_id for progress in given.values()} - {""}
    found = limits.topic_id if limits else ""
    if not known or (limits is not None and (not found or known == {found})):
        return
    last = max(given.values(), key=lambda progress: progress.window)
    offsets = ", ".join(
        f"partition {partition} up to offset {progress.last_offset}"
        for partition, progress in sorted(given.items())
        if progress.last_offset is not None
    )
    raise TopicError(
        f"topic {topic!r} was removed{' and made again' if limits else ''}: Kafka's id for it was "
        f"{', '.join(sorted(known))}, and is {found or 'none'} now. Gone with it is what it was given up to window "
        f"{last.window}, at {last.where} ({offsets or 'offsets are not known'}). Nothing was published. To have it "
        "again, `changefeed backfill` the table from the oldest binlog file with --suffix ''. Then, or to go on "
        "without it, `changefeed prune --topic` forgets what the old topic was given."
    )


def check_same_topics(limits: Mapping[str, TopicLimits], given: Mapping[TopicPartition, Progress], window: int) -> None:
    """`check_same_topic` for all topics of ``limits``, and for those that were given messages of ``window``."""
    by_topic: dict[str, dict[int, Progress]] = {}
    for (topic, partition), progress in given.items():
        by_topic.setdefault(topic, {})[partition] = progress
    for topic, partitions in sorted(by_topic.items()):
        if topic in limits or any(progress.window == window for progress in partitions.values()):
            check_same_topic(topic, limits.get(topic), partitions)
