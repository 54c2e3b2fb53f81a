"""A pipeline's topics on a real broker, batches to publish, and an independent reader of what arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import kafka
from encode_batches import encode_batches

from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.kafka.publisher import Publisher
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics, topic_limits
from changefeed.model.publish_settings import PublishSettings
from changefeed.model.topic_name import commit_log_topic, dead_letter_topic
from changefeed.records.batch import Batch
from changefeed.records.block import Message, MessageBlock, Step, pack, sequence_of

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def message(row: int, *, file: str = "bin.000007", value: bytes = b"", gtid: str = "") -> Message:
    """Ten rows an event, events of 100 bytes."""
    position, within = 4 + row // 10 * 100, row % 10
    event_id = f"{SERVER}/{file}:{position}/{within}"
    return Message(
        position,
        sequence_of(within, Step.CHANGE),
        b'{"id":%d}' % row,
        value or b'{"row":%d}' % row,
        event_id.encode(),
        gtid.encode(),
    )


def batches_of(
    topic: str, partition: int, rows: Sequence[int], *, per_batch: int = 100, file: str = "bin.000007", gtid: str = ""
) -> list[Batch]:
    """The rows of ``range`` as finished batches in binlog order."""
    return encode_batches(
        MessageBlock(topic, partition, file, 0, number, pack(message(row, file=file, gtid=gtid) for row in part))
        for number, part in enumerate(rows[at : at + per_batch] for at in range(0, len(rows), per_batch))
    )


@dataclass
class Pipeline:
    """Topics of one pipeline. kafka-python reads no lz4 without another package, so it is zstd here."""

    connection: KafkaConnection
    name: str
    partitions: int = 2
    configs: dict[str, str] = field(default_factory=dict)
    settings: PublishSettings = field(default_factory=lambda: PublishSettings(compression="zstd"))

    def __post_init__(self) -> None:
        self.topic = f"{self.name}.orders"
        self.log_topic = commit_log_topic(self.name)
        self.dead_letters = dead_letter_topic(self.name)
        ensure_topics(
            self.connection,
            {
                self.topic: TopicSettings(self.partitions, 1, self.configs),
                self.log_topic: commit_log_settings(1),
                self.dead_letters: TopicSettings(1, 1),
            },
        )
        self.limits = topic_limits(self.connection, [self.topic, self.dead_letters], {self.topic: "shop.orders"})
        self.log = CommitLog(self.connection, self.log_topic, self.name)

    def fence(self, tasks: int = 1) -> str:
        with self.lease() as lease:
            return fence(lease, tasks)

    def lease(self) -> Lease:
        """The lease of the pipeline, still to be entered."""
        return Lease(self.connection, self.log_topic, self.name, 5)

    def publisher(self, task: int = 0, window: int = 1, **options: Any) -> Publisher:
        settings = options.pop("settings", self.settings)
        limits = options.pop("limits", self.limits)
        return Publisher(
            self.connection, self.name, task, window, self.log_topic, limits, settings, source=SERVER, **options
        )


def committed(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All records of a topic, by partition and offset, read by kafka-python alone."""
    return list(read(bootstrap, topic, isolation))


def read(bootstrap: str, topic: str, isolation: str = "read_committed", *, check_crcs: bool = True) -> Iterator[Any]:
    """`committed`, without holding them."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        check_crcs=check_crcs,
    )
    try:
        for number in sorted(consumer.partitions_for_topic(topic)):
            partition = kafka.TopicPartition(topic, number)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = consumer.end_offsets([partition])[partition]
            while consumer.position(partition) < end:
                yield from consumer.poll(timeout_ms=100).get(partition, ())
    finally:
        consumer.close()


def ids(records: list[Any]) -> list[str]:
    return [dict(record.headers)["changefeed.id"].decode() for record in records]


def ids_of(rows: Iterable[int], file: str = "bin.000007") -> list[str]:
    return [message(row, file=file).event_id.decode() for row in rows]
