"""A discard of dead letters deletes them up to an offset, and nothing else; on a real broker."""

from __future__ import annotations

import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from changefeed.errors import SettingsError, TopicError
from changefeed.kafka.commit_log.records import DiscardRecord, FirstRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.record_writer import RecordWriter
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.topic_name import commit_log_topic, dead_letter_topic
from changefeed.operations.discard import discard, plan_discard
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, TableSettings
from devstack.kafka import KafkaBroker

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


class Letters:
    """A pipeline with a dead-letter topic of two partitions, and a topic beside it with the same records."""

    def __init__(self, name: str, broker: KafkaBroker) -> None:
        self.bootstrap = broker.bootstrap
        self.topic, self.beside = dead_letter_topic(name), f"{name}.orders"
        pipeline = Pipeline(
            name=name,
            source=SourceSettings(connection="mysql"),
            kafka=KafkaSettings(connection="kafka", on_bad_record="dead_letter"),
            tables=TableSettings(include=[f"{name}.*"]),
        )
        self.connections = PipelineConnections(pipeline, {"kafka": f"kafka://{broker.bootstrap}"}.__getitem__)
        connection, log = KafkaConnection(broker.bootstrap), commit_log_topic(name)
        topics = {self.topic: TopicSettings(partitions=2), self.beside: TopicSettings(partitions=2)}
        ensure_topics(connection, {**topics, log: commit_log_settings(1)})
        first = FirstRecord(Checkpoint(name, 0, SERVER, BinlogCoordinates("binlog.000001", 4), "", 1))
        with RecordWriter(connection, log) as writer:
            writer.write({first.key(name): first.value()}, "to prepare a test")
        for number in range(6):
            self.write(number % 2, number)

    def write(self, partition: int, number: int, server: str = SERVER, reason: bytes | None = b"too large") -> None:
        """Write a record to both topics."""
        headers = [("changefeed.id", f"{server}/binlog.000001:{number}/0".encode()), ("changefeed.topic", b"orders")]
        headers += [] if reason is None else [("changefeed.reason", reason)]
        with kafka.KafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            for topic in (self.topic, self.beside):
                producer.send(topic, b"%d" % number, partition=partition, headers=headers, timestamp_ms=1000 + number)

    def left(self, topic: str = "") -> list[tuple[int, int]]:
        """Partition and offset of the records of a topic, by default of the dead letters."""
        with kafka.KafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            partitions = [kafka.TopicPartition(topic or self.topic, number) for number in range(2)]
            first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        return [(each.partition, offset) for each in partitions for offset in range(first[each], end[each])]

    @property
    def discards(self) -> list[DiscardRecord]:
        return self.connections.commit_log().read().of(DiscardRecord)


@pytest.fixture
def letters(unique_name: str, kafka_broker: KafkaBroker) -> Letters:
    return Letters(unique_name, kafka_broker)


def test_dead_letters_are_deleted_up_to_the_planned_offsets_with_a_reason_in_the_log(letters: Letters) -> None:
    beside = letters.left(letters.beside)
    planned = plan_discard(letters.connections, {1: 1})
    assert letters.left() == beside, "a plan deletes nothing"
    assert (planned.letters, dict(planned.tables), planned.oldest_ms, planned.newest_ms) == (
        2,
        {"orders": 2},
        1001,
        1003,
    )
    with pytest.raises(SettingsError, match="a discard needs a reason"):
        discard(letters.connections, planned, who="ada", why=" ")
    letters.write(1, 7)
    record = discard(letters.connections, planned, who="ada", why="replayed")
    assert letters.left() == [(0, 0), (0, 1), (0, 2), (1, 2), (1, 3)]
    assert letters.discards == [record]
    assert (record.who, record.why, record.up_to, record.tables) == ("ada", "replayed", {1: 1}, ("orders",))
    rest = plan_discard(letters.connections, {})
    assert (rest.up_to, rest.before, rest.letters) == ({0: 2, 1: 3}, {0: 0, 1: 2}, 5)
    discard(letters.connections, rest, who="ada", why="the rest")
    assert letters.left() == []
    assert plan_discard(letters.connections, {}).to_json()["letters"] == 0
    assert letters.left(letters.beside) == [*beside, (1, 3)], "no other topic is touched"
    assert [each.why for each in letters.discards] == ["replayed", "the rest"]


@pytest.mark.extended
def test_offsets_without_a_record_are_refused(letters: Letters) -> None:
    wrong: list[dict[int, int]] = [{0: 3}, {0: -1}, {2: 0}, {0: 0, 1: 9}]
    for up_to in wrong:
        with pytest.raises(SettingsError, match=r"expected (the offset of a record|a partition)"):
            plan_discard(letters.connections, up_to)


@pytest.mark.parametrize(
    ("server", "reason", "found"),
    [("other", b"x", "of server other"), (SERVER, None, "a record that is no dead letter")],
)
def test_records_of_others_are_not_deleted(letters: Letters, server: str, reason: bytes | None, found: str) -> None:
    letters.write(0, 8, server, reason)
    letters.write(0, 9)
    for up_to in ({0: 4}, {}):
        with pytest.raises(SettingsError, match=rf"found .*{found}.* at offset 3 of partition 0"):
            plan_discard(letters.connections, up_to)
    assert plan_discard(letters.connections, {0: 2}).letters == 3


@pytest.mark.extended
def test_discard_that_kafka_refuses_leaves_no_record(letters: Letters) -> None:
    planned = plan_discard(letters.connections, {})
    admin = kafka.KafkaAdminClient(bootstrap_servers=letters.bootstrap)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, letters.topic, {"cleanup.policy": "compact"})])
    admin.close()
    with pytest.raises(TopicError, match=r"cleanup\.policy must contain delete"):
        discard(letters.connections, planned, who="ada", why="no longer needed")
    assert (len(letters.left()), letters.discards) == (6, [])


def test_pipeline_without_dead_letters_has_none_to_discard(letters: Letters) -> None:
    pipeline = letters.connections.pipeline
    plain = pipeline.model_copy(update={"kafka": KafkaSettings(connection="kafka")})
    with pytest.raises(SettingsError, match="expected `on_bad_record: dead_letter`"):
        plan_discard(PipelineConnections(plain, letters.connections.lookup), {})
