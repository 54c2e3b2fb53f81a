"""The topics that a window's messages go to, with the partitions that they had when its first message was published."""

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
    """The ``known`` topics, which the driver created or found, and on demand topics of tables that only the binlog has.

    The partition of a key depends on its topic's number of partitions, so that number is always read from Kafka.
    """

    def __init__(self, connection: KafkaConnection, known: Mapping[str, TopicLimits], *, create: bool = True) -> None:
        self._connection, self._create = connection, create
        self.known = dict(known)

    def ensure(self, topic: str, settings: TopicSettings) -> TopicLimits:
        """The limits of ``topic``, which is created if it is missing. Raises what `ensure_topics` raises."""
        if topic not in self.known:
            ensure_topics(self._connection, {topic: settings}, create=self._create)
        return self.of(topic)

    def of(self, topic: str) -> TopicLimits:
        """The limits of the existing ``topic``; raises what `topic_limits` raises."""
        self.learn([topic])
        return self.known[topic]

    def learn(self, topics: Iterable[str]) -> None:
        """Look up the topics of ``topics`` that are not known yet, in one request. Raises what `of` raises."""
        if missing := [topic for topic in topics if topic not in self.known]:
            self.known |= topic_limits(self._connection, missing)


def with_begun_partitions(
    limits: Mapping[str, TopicLimits], published: Mapping[TopicPartition, Progress], window: Window
) -> dict[str, TopicLimits]:
    """``limits`` with the number of partitions that each topic had when ``window`` was begun, from the progress
    ``published``.

    After a failover the progress of the old server's unfinished window counts too, because its published messages are
    known by partition.

    Partitions that were added since get messages from the next window on. Raises TopicError for a topic that now has
    fewer partitions.
    """
    begun = dict(limits)
    for (topic, _), progress in published.items():
        if progress.window <= window.after or topic not in limits:
            continue
        if limits[topic].partitions < progress.partitions:
            raise TopicError(
                f"topic {topic!r} had {progress.partitions} partitions when window {progress.window} was begun, and "
                f"has {limits[topic].partitions}: it was removed and created again. The published messages of the "
                "window are gone. Nothing more was published. `changefeed prune --topic` forgets the topic's progress, "
                "and the next run publishes the window to it again."
            )
        begun[topic] = replace(limits[topic], partitions=progress.partitions)
    return begun


def check_same_topic(
    topic: str,
    limits: TopicLimits | None,
    published: Mapping[int, Progress],
    begin: str = "where this window begins",
    *,
    is_of_statements: bool = False,
) -> None:
    """Raise TopicError if ``topic`` is not the topic to which the messages of ``published`` were published.

    ``published`` is the progress by partition. ``limits`` is None if the topic does not exist. ``begin`` describes
    where the next window begins, for the error message. ``is_of_statements`` is true for the topic of schema changes,
    which has no rows of a table.
    """
    known = {progress.topic_id for progress in published.values()} - {""}
    found = limits.topic_id if limits else ""
    if not known or (limits is not None and (not found or known == {found})):
        return
    last = max(published.values(), key=lambda progress: progress.window)
    offsets = ", ".join(
        f"partition {partition} up to offset {progress.last_offset}"
        for partition, progress in sorted(published.items())
        if progress.last_offset is not None
    )
    there = f"found {found}, of a topic that was created since" if found else "found no topic"
    forget = "`changefeed prune --topic` forgets the progress of the old topic"
    again = (
        f"No backfill brings schema changes back without the rows of their tables: {forget}, and the next run "
        "continues. A follower that has not read them must begin again from a copy of the source."
        if is_of_statements
        else f"To publish its changes again, `changefeed backfill` the table with --suffix '' from position 4 of the "
        f"oldest binlog file to {begin}; the next run publishes the later ones. Then, or to continue without them, "
        f"{forget}."
    )
    raise TopicError(
        f"topic {topic!r} was removed: Kafka's id for it was {', '.join(sorted(known))}, {there}. Its messages up to "
        f"window {last.window}, at {last.where} ({offsets or 'offsets are not known'}), are gone. "
        f"Nothing was published. {again}"
    )


def check_same_topics(
    limits: Mapping[str, TopicLimits],
    published: Mapping[TopicPartition, Progress],
    window: Window,
    required: Collection[str] = (),
) -> None:
    """Call `check_same_topic` for the topics of ``limits``, the topics ``required``, and topics with messages after the
    checkpoint."""
    by_topic: dict[str, dict[int, Progress]] = {}
    for (topic, partition), progress in published.items():
        by_topic.setdefault(topic, {})[partition] = progress
    for topic, partitions in sorted(by_topic.items()):
        is_required = topic in limits or topic in required
        if is_required or any(progress.window > window.after for progress in partitions.values()):
            is_of_statements = topic.startswith(schema_changes_topic(window.pipeline))
            check_same_topic(topic, limits.get(topic), partitions, str(window.start), is_of_statements=is_of_statements)
