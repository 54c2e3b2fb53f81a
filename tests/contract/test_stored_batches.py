"""What `kafka/stored_batches.py` takes for granted of kafka-python: fails when another version moves it."""

from __future__ import annotations

import inspect

from integration.kafka_wire import record_batch
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch

from changefeed.kafka.client_internals import FinishedRecords, InnerProducer
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.topics import TopicSettings, ensure_topics
from changefeed.records.record_batch import HEAD_BYTES, records_in
from devstack.kafka import KafkaBroker

READ = "read kafka-python's consumer/fetcher.py again, and then kafka/stored_batches.py"


def test_replaced_methods_exist_and_are_called() -> None:
    parameters = list(inspect.signature(Fetcher.PartitionRecords._unpack_records).parameters)
    assert parameters == ["self", "tp", "records", "key_deserializer", "value_deserializer"], READ
    assert "self.PartitionRecords(" in inspect.getsource(Fetcher), READ
    assert DefaultRecordBatch.HEADER_STRUCT.size == HEAD_BYTES, READ


def test_only_batches_of_committed_transactions_are_returned(kafka_broker: KafkaBroker, unique_name: str) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap)
    ensure_topics(connection, {unique_name: TopicSettings(1, 1)})
    settings = {**connection.kafka_python(), "transactional_id": unique_name}
    producer = InnerProducer(settings, [unique_name])
    producer.take_over()
    expected = []
    for round_number, commits in enumerate([True, False, True, True]):
        producer.begin()
        batch, count = record_batch(range(10 * round_number, 10 * round_number + 5))
        producer.send_batch(unique_name, 0, FinishedRecords(batch, count), lambda *_: None)
        (producer.commit if commits else producer.abort)(20)
        if commits:
            expected.append(bytes(batch[HEAD_BYTES:]))
    producer.close()
    partition = (unique_name, 0)
    with partition_reader(connection, [partition], "to test", start={partition: 2}, stored_batches=True) as reader:
        end = reader.last_stable_offsets()[partition]
        found: list[KafkaRecord] = []
        while (reader.positions()[partition] or 0) < end:
            found += reader.poll(0.2)
    assert [records_in(batch.value or b"") for batch in found] == [(data, 5) for data in expected]
    assert [batch.offset for batch in found] == sorted({batch.offset for batch in found})
    assert found[0].offset == 0
