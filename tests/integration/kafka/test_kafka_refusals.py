"""What a broker says no to in the middle of a run, and what the run says of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from encode_batches import encode_batches
from integration.kafka_pipeline import Pipeline, batches_of, committed, message
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)
from kafka.errors import IncompatibleBrokerVersion

from changefeed.errors import BadRecordError, FencedError, TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import transactional_id
from changefeed.kafka.topics import TopicLimits, TopicSettings, ensure_topics
from changefeed.model.publish_settings import PublishSettings
from changefeed.records.batch import Batch
from changefeed.records.block import MessageBlock, pack
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.process import run_server

pytestmark = pytest.mark.extended

_SETTINGS = PublishSettings(
    transaction_rows=100, transaction_seconds=5, transaction_timeout_seconds=15, compression="none"
)


@pytest.fixture(scope="module")
def guarded_broker(session_folder: Path) -> Iterator[KafkaBroker]:
    """A broker with ACLs, that lets everybody do what no ACL speaks of."""
    broker = KafkaBroker(
        session_folder / "guarded-kafka",
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
        owner=ProcessId.own(),
        quick=True,
    )
    with run_server(broker):
        yield broker


def _deny(connection: KafkaConnection, kind: ResourceType, name: str, operation: ACLOperation) -> None:
    acl = ACL("User:ANONYMOUS", "*", operation, ACLPermissionType.DENY, ResourcePattern(kind, name))
    with connection.admin() as admin:
        admin.create_acls([acl])


def test_topic_without_write_permission_is_an_error(guarded_broker: KafkaBroker, unique_name: str) -> None:
    pipeline = Pipeline(KafkaConnection(guarded_broker.bootstrap), unique_name, settings=_SETTINGS)
    _deny(pipeline.connection, ResourceType.TOPIC, pipeline.topic, ACLOperation.WRITE)
    with pytest.raises(TopicError, match="does not allow") as raised, pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(10)))
    assert pipeline.topic in str(raised.value)


def test_transactional_id_without_permission_is_an_error(guarded_broker: KafkaBroker, unique_name: str) -> None:
    pipeline = Pipeline(KafkaConnection(guarded_broker.bootstrap), unique_name, settings=_SETTINGS)
    name = transactional_id(pipeline.name, 0)
    _deny(pipeline.connection, ResourceType.TRANSACTIONAL_ID, name, ACLOperation.WRITE)
    with pytest.raises(TopicError, match="does not allow") as raised:
        pipeline.fence()
    assert name in str(raised.value)


def test_commit_log_without_read_permission_is_an_error(guarded_broker: KafkaBroker, unique_name: str) -> None:
    connection = KafkaConnection(guarded_broker.bootstrap, timeout_seconds=3)
    pipeline = Pipeline(connection, unique_name, settings=_SETTINGS)
    _deny(connection, ResourceType.TOPIC, pipeline.log_topic, ACLOperation.READ)
    with pytest.raises(TopicError, match="may not be read"):
        pipeline.log.read()


def test_cluster_without_create_permission_is_an_error(guarded_broker: KafkaBroker, unique_name: str) -> None:
    connection = KafkaConnection(guarded_broker.bootstrap)
    _deny(connection, ResourceType.TOPIC, unique_name, ACLOperation.CREATE)
    with pytest.raises(TopicError, match="ACL"):
        ensure_topics(connection, {unique_name: TopicSettings(1, 1)})


@pytest.fixture
def pipeline(kafka_broker: KafkaBroker, unique_name: str) -> Pipeline:
    return Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, settings=_SETTINGS)


def test_topic_removed_during_a_run_is_an_error_in_bounded_time(pipeline: Pipeline) -> None:
    def removing() -> Iterator[Batch]:
        yield from batches_of(pipeline.topic, 0, range(100))
        with pipeline.connection.admin() as admin:
            admin.delete_topics([pipeline.topic])
        time.sleep(1)
        yield from batches_of(pipeline.topic, 0, range(100, 200))

    begun = time.monotonic()
    with pytest.raises(TopicError, match="removed") as raised, pipeline.publisher() as publisher:
        publisher.publish(removing())
    assert pipeline.topic in str(raised.value)
    assert time.monotonic() - begun < 60


def test_record_too_large_for_the_broker_is_an_error_with_coordinates(pipeline: Pipeline) -> None:
    """max.message.bytes was lowered after the run had read it."""
    with pipeline.connection.admin() as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, pipeline.topic, {"max.message.bytes": "2000"})
        admin.alter_configs([resource])
    rows = [message(1), message(2, value=b"x" * 4000), message(3)]
    batches = encode_batches(
        [MessageBlock(pipeline.topic, 0, "bin.000007", 0, 0, pack(rows))], PublishSettings(compression="none")
    )
    with pytest.raises(BadRecordError) as raised, pipeline.publisher() as publisher:
        publisher.publish(batches)
    assert pipeline.topic in str(raised.value)
    assert "bin.000007:4" in str(raised.value)
    assert committed(pipeline.connection.bootstrap, pipeline.topic) == []


def test_missing_partition_is_an_error(pipeline: Pipeline) -> None:
    limits = {pipeline.topic: TopicLimits(9)}
    with pytest.raises(TopicError, match="partition 8"), pipeline.publisher(limits=limits) as publisher:
        publisher.publish(batches_of(pipeline.topic, 8, range(10)))


def test_a_record_refused_in_the_middle_of_a_transaction_ends_the_run_for_good(pipeline: Pipeline) -> None:
    """No delivery report is awaited in between: the commit raises the error, and not that of an unreachable broker."""
    with pipeline.connection.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, pipeline.topic, {"max.message.bytes": "2000"})])
    settings = PublishSettings(transaction_rows=10_000, compression="none", batch_bytes=1000)
    rows = [message(row, value=b"x" * 4000 if row == 500 else b"") for row in range(1000)]
    batches = encode_batches([MessageBlock(pipeline.topic, 0, "bin.000007", 0, 0, pack(rows))], settings)
    with pytest.raises(BadRecordError) as raised, pipeline.publisher(settings=settings) as publisher:
        publisher.publish(batches)
    assert pipeline.topic in str(raised.value)
    assert committed(pipeline.connection.bootstrap, pipeline.topic) == []


def test_brokers_too_old_to_list_transactions_are_fenced_by_the_ids_of_this_run(
    kafka_broker: KafkaBroker, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_old(_admin: KafkaAdminClient) -> None:  # what kafka-python raises of Kafka 2.8
        raise IncompatibleBrokerVersion("Kafka broker does not support the 'ListTransactionsRequest' Kafka protocol.")

    monkeypatch.setattr(KafkaAdminClient, "list_transactions", too_old)
    pipeline = Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, settings=_SETTINGS)
    with pipeline.publisher(attempt=pipeline.fence()) as publisher:
        attempt = pipeline.fence()
        with pytest.raises(FencedError):
            publisher.publish(batches_of(pipeline.topic, 0, range(10)))
    with pipeline.publisher(attempt=attempt) as publisher:
        assert publisher.publish(batches_of(pipeline.topic, 0, range(10)))[0].messages == 10


def test_too_old_broker_is_an_error_with_the_required_version(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(TopicError, match="too old"), KafkaConnection(kafka_broker.bootstrap).admin():
        raise IncompatibleBrokerVersion("no such request")
