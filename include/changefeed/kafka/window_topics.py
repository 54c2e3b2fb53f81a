"""The topics that a window's messages go to, as they were when its first message was published."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from changefeed.errors import TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.topics import TopicLimits, TopicSettings, ensure_topics, topic_limits
from changefeed.model.topic_name import schema_changes_topic
from changefeed.model.window import Window


class WindowTopics:
    """``known`` topics, those that the driver made sure of, and on demand those of tables that only the binlog has.

    A key's partition follows from its topic's number of partitions, so Kafka is always asked for that number.
    """

    def __init__(self, connection: KafkaConnection, known: Mapping[str, TopicLimits], *, create: bool = True) -> None:
        self._connection, self._create = connection, create
        self.known = dict(known)

    def made(self, topic: str, settings: TopicSettings) -> TopicLimits:
        """What ``topic`` takes; it is made where it is not there. Raises as `ensure_topics` does."""
        if topic not in self.known:
            ensure_topics(self._connection, {topic: settings}, create=self._create)
        return self.of(topic)

    def of(self, topic: str) -> TopicLimits:
        """What ``topic`` takes, which is there; raises as `topic_limits` does."""
        self.learn([topic])
        return self.known[topic]

    def learn(self, topics: Iterable[str]) -> None:
        """Have all of ``topics`` among the known ones; Kafka is asked once for those that are not. Raises as `of`."""
        if missing := [topic for topic in topics if topic not in self.known]:
            self.known |= topic_limits(self._connection, missing)


def as_begun(
    limits: Mapping[str, TopicLimits], given: Mapping[TopicPartition, Progress], window: Window
) -> dict[str, TopicLimits]:
    """``limits`` with the partitions that each topic had when ``window`` was begun, by what it was ``given`` since.

    What another server's unfinished window gave before a failover counts: what of it is in Kafka is known by partition.

    Partitions that were added meanwhile get messages from the next window on. Raises TopicError for a topic that has
    fewer partitions than the window began with.
    """
    begun = dict(limits)
    for (topic, _), progress in given.items():
        if progress.window <= window.after or topic not in limits:
            continue
        if limits[topic].partitions < progress.partitions:
            raise TopicError(
                f"topic {topic!r} had {progress.partitions} partitions when window {progress.window} was begun, and "
                f"has {limits[topic].partitions}: it was removed and made again. What was published of the window "
                "before is gone. Nothing more was published. `changefeed prune --topic` forgets what it was given, and "
                "the next run publishes the window to it again."
            )
        begun[topic] = replace(limits[topic], partitions=progress.partitions)
    return begun


def check_same_topic(
    topic: str,
    limits: TopicLimits | None,
    given: Mapping[int, Progress],
    begin: str = "where this window begins",
    *,
    is_of_statements: bool = False,
) -> None:
    """Raises TopicError where ``topic`` is not the one that was ``given`` messages before, by partition.

    ``limits`` is None where there is no such topic. ``begin`` is where the window begins that is to be published.
    ``is_of_statements`` says that it has schema changes, and no rows of a table.
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
    there = f"is {found} now, of a topic that was made since, by a run or by somebody else" if found else "is none now"
    forget = "`changefeed prune --topic` forgets what the old topic was given"
    again = (
        f"No backfill brings schema changes back without the rows of their tables: {forget}, "
        "and the next run goes on; a follower that has not read them begins anew from a copy of the source."
        if is_of_statements
        else f"To have it again, `changefeed backfill` the table with --suffix '' from position 4 of the oldest binlog "
        f"file to {begin}: what is behind that, the next run publishes. Then, or to go on without it, {forget}."
    )
    raise TopicError(
        f"topic {topic!r} was removed: Kafka's id for it was {', '.join(sorted(known))}, and {there}. Gone with it is "
        f"what it was given up to window {last.window}, at {last.where} ({offsets or 'offsets are not known'}). "
        f"Nothing was published. {again}"
    )


def check_same_topics(
    limits: Mapping[str, TopicLimits],
    given: Mapping[TopicPartition, Progress],
    window: Window,
    wanted: Collection[str] = (),
) -> None:
    """`check_same_topic` for all topics of ``limits``, those ``wanted``, and those that were given messages behind the
    checkpoint."""
    by_topic: dict[str, dict[int, Progress]] = {}
    for (topic, partition), progress in given.items():
        by_topic.setdefault(topic, {})[partition] = progress
    for topic, partitions in sorted(by_topic.items()):
        is_wanted = topic in limits or topic in wanted
        if is_wanted or any(progress.window > window.after for progress in partitions.values()):
            is_of_statements = topic.startswith(schema_changes_topic(window.pipeline))
            check_same_topic(topic, limits.get(topic), partitions, str(window.start), is_of_statements=is_of_statements)
