"""What `kafka/client_internals.py` takes for granted of kafka-python's insides: fails when another version moves it."""

from __future__ import annotations

import inspect
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import kafka
import kafka.errors
import pytest
from integration.kafka_wire import record_batch, rows_of
from kafka.cluster import ClusterMetadata
from kafka.net.connection import KafkaConnection as NetworkConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.producer import producer_batch, record_accumulator, sender
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.record_accumulator import IncompleteProducerBatches, RecordAccumulator
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import TransactionalRequestResult, TransactionManager
from kafka.record import default_records

from changefeed.kafka.client_internals import FinishedRecords, InnerProducer, is_well, producer_is_well
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.record_writer import RecordWriter
from changefeed.kafka.topics import TopicSettings, ensure_topics
from devstack.kafka import KafkaBroker

READ = "read kafka-python's producer/ again, and then kafka/client_internals.py, before its version is raised"


def test_installed_version_is_the_version_that_was_reviewed() -> None:
    assert kafka.__version__ == "3.0.12", READ


@pytest.mark.parametrize(
    ("what", "parameters"),
    [
        (ProducerBatch.__init__, "self tp records now"),
        (ProducerBatch.has_sequence.fget, "self"),
        (RecordAccumulator._tp_lock, "self tp"),
        (RecordAccumulator.abort_incomplete_batches, "self"),
        (RecordAccumulator.split_and_reenqueue, "self batch now"),
        (IncompleteProducerBatches.add, "self batch"),
        (Sender.add_topic, "self topic"),
        (Sender.wakeup, "self"),
        (Sender.force_close, "self"),
        (Sender._can_split, "self batch error"),
        (TransactionManager._supports_epoch_bump, "self"),
        (TransactionManager.has_error, "self"),
        (TransactionManager.last_error.fget, "self"),
        (TransactionManager.maybe_add_partition_to_transaction, "self topic_partition"),
        (TransactionManager.begin_commit, "self"),
        (TransactionManager.begin_abort, "self"),
        (TransactionalRequestResult.wait, "self timeout_ms"),
        (ClusterMetadata.set_topics, "self topics"),
        (KafkaConnectionManager.run, "self coro args"),
        (KafkaConnectionManager.send, "self request node_id request_timeout_ms"),
        (KafkaConnectionManager._build_transport, "self node timeout_at"),
        (KafkaConnectionManager._connect, "self node conn reset_backoff_on_connect timeout_at"),
        (NetworkConnection._request_timed_out, "self future sent_at timeout_at"),
        (NetworkConnection.close, "self error"),
        (KafkaTCPTransport._sock_recv, "self"),
        (KafkaSSLTransport._sock_recv, "self"),
        (KafkaTCPTransport.write, "self data"),
        (kafka.KafkaProducer.close, "self timeout null_logger"),
    ],
)
def test_called_methods_have_the_reviewed_parameters(what: Callable[..., Any], parameters: str) -> None:
    assert list(inspect.signature(what).parameters) == parameters.split(), READ


def test_producer_uses_only_the_members_of_finished_records() -> None:
    modules = (sender, record_accumulator, producer_batch)
    asked = {name for module in modules for name in re.findall(r"\brecords\.(\w+)", inspect.getsource(module))}
    assert asked == {name for name in vars(FinishedRecords(*record_batch([1]))) if name[0] != "_"} | {
        name for name in vars(FinishedRecords) if name[0] != "_"
    }, READ


def test_a_batch_is_split_where_it_has_more_records_than_one() -> None:
    assert "batch.record_count > 1" in inspect.getsource(Sender._can_split), READ


@pytest.fixture
def inner(kafka_broker: KafkaBroker, unique_name: str) -> InnerProducer:
    connection = KafkaConnection(kafka_broker.bootstrap)
    ensure_topics(connection, {unique_name: TopicSettings(2, 1)})
    settings = {**connection.kafka_python(), "transactional_id": unique_name}
    return InnerProducer(settings, [unique_name])


def test_a_producer_takes_over_again_as_a_new_one(inner: InnerProducer, unique_name: str) -> None:
    epochs = []
    for round_number in range(3):
        inner.take_over()
        assert inner.is_well(), READ
        epochs.append(inner._manager.producer_id_and_epoch.epoch)
        inner.begin()
        inner.send(unique_name, 0, b"%d" % round_number, None, [], lambda _first, _error: None)
        while inner._accumulator.has_incomplete:
            time.sleep(0.01)
        inner.commit(10)
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2], f"the broker did not fence the earlier use: {READ}"
    inner.begin()
    assert not inner.is_well(), f"an open transaction is not seen: {READ}"
    inner.close()


def test_a_record_goes_to_a_partition_that_was_added_since_the_producer_was_opened(
    inner: InnerProducer, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    answers: list[tuple[int | None, Exception | None]] = []
    inner.take_over()
    inner.begin()
    for partition in range(3):
        inner.send(unique_name, partition, b"letter", None, [], lambda *answer: answers.append(answer))
        if partition == 0:
            with KafkaConnection(kafka_broker.bootstrap).admin() as admin:
                admin.create_partitions({unique_name: 3})
    while inner._accumulator.has_incomplete:
        time.sleep(0.01)
    inner.commit(10)
    inner.close()
    assert answers == [(0, None)] * 3, READ


def test_a_sequence_number_in_doubt_is_fatal(inner: InnerProducer) -> None:
    manager = inner._manager
    for error in (
        kafka.errors.OutOfOrderSequenceNumberError,
        kafka.errors.UnknownProducerIdError,
        kafka.errors.InvalidProducerEpochError,
    ):
        assert manager.classify_batch_error(error, None) == TransactionManager.ERROR_CLASS_FATAL, READ
    inner.close()


def test_one_batch_of_a_partition_is_under_way_at_a_time(inner: InnerProducer) -> None:
    assert inner._sender.config["guarantee_message_order"] is True, READ
    inner.close()


def test_finished_batches_pass_by_its_sender(inner: InnerProducer, kafka_broker: KafkaBroker, unique_name: str) -> None:
    inner.take_over()
    answers: list[tuple[int | None, Exception | None]] = []
    all_there = threading.Event()

    def done(first: int | None, error: Exception | None) -> None:
        answers.append((first, error))
        if len(answers) == 3:
            all_there.set()

    for round_number in range(2):
        inner.begin()
        answers.clear()
        all_there.clear()
        for at in range(3):
            first = 100 * round_number + 10 * at
            inner.send_batch(unique_name, 1, FinishedRecords(*record_batch(range(first, first + 10))), done)
        assert all_there.wait(120), f"kafka-python's sender takes no batches out of its accumulator: {READ}"
        assert [error for _, error in answers] == [None] * 3, READ
        inner.commit(10)
    inner.close()
    expected = [100 * round_number + row for round_number in range(2) for row in range(30)]
    assert rows_of(kafka_broker.bootstrap, unique_name)[1] == expected


def test_records_that_are_read_are_checked_by_a_compiled_checksum() -> None:
    assert default_records.calc_crc32c(memoryview(b"123456789")) == 0xE3069283, "as RFC 3720 has it"
    assert "calc_crc32c" in default_records.DefaultRecordBatch.validate_crc.__code__.co_names, READ


def test_a_client_asks_for_metadata_again_without_a_pause() -> None:
    assert "self.config['retry_backoff_ms']" in inspect.getsource(ClusterMetadata.ttl), READ


def test_a_client_is_well_until_it_cannot_open_a_connection_again(kafka_broker: KafkaBroker, unique_name: str) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap)
    with connection.admin() as admin, connection.consumer() as consumer:
        clients = (admin, consumer)
        assert all(is_well(client) for client in clients)
        for client in clients:
            client._client._manager.update_backoff("a broker")
        assert not any(is_well(client) for client in clients)
    with RecordWriter(connection, unique_name) as writer:
        assert producer_is_well(writer._producer)
