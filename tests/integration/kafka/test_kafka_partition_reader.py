"""Partitions are read to where they end, each record once, and never without a bound."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Producer

from changefeed.errors import BrokerUnavailableError, TopicError
from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.schema_log import SchemaLog, schema_history_settings
from changefeed.kafka.topics import TopicSettings, ensure_topics
from changefeed.records.record_batch import records_of
from devstack.kafka import KafkaBroker

TIMEOUT_SECONDS = 20.0


@pytest.fixture
def connection(kafka_broker: KafkaBroker) -> KafkaConnection:
    return KafkaConnection(kafka_broker.bootstrap)


@pytest.fixture
def topic(connection: KafkaConnection, unique_name: str) -> str:
    """A topic of two partitions with three records each."""
    ensure_topics(connection, {unique_name: TopicSettings(2, 1, {"message.timestamp.type": "LogAppendTime"})})
    write(connection, unique_name, range(3))
    return unique_name


@pytest.fixture
def still_broker(kafka_broker: KafkaBroker) -> Iterator[Callable[[], None]]:
    """Call it, and the broker answers nobody until the test ends, while its connections stay open."""
    pid = kafka_broker.pid
    assert pid is not None
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


def write(connection: KafkaConnection, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": connection.bootstrap})
    for partition in (0, 1):
        for value in values:
            producer.produce(topic, b"%d" % value, b"%d/%d" % (partition, value), partition, headers=[("h", b"x")])
    assert producer.flush(20) == 0


def keys(records: list[KafkaRecord]) -> list[bytes | None]:
    return sorted(record.key or b"" for record in records)


def test_only_readers_that_say_so_may_be_answered_by_a_replica_of_their_rack(kafka_broker: KafkaBroker) -> None:
    """A replica may be behind the leader: a commit log that is read too short would have messages published again."""
    connection = KafkaConnection(kafka_broker.bootstrap, {"client.rack": "here"})
    racks = []
    for nearest in (False, True):
        with connection.consumer(nearest=nearest) as consumer:
            racks.append(consumer.config["client_rack"])
    assert racks == ["", "here"]


def test_reader_stops_at_the_ends_at_its_start_and_continues_with_new_records(
    connection: KafkaConnection, topic: str
) -> None:
    with partition_reader(connection, [(topic, 0), (topic, 1)], "to test") as reader:
        ends = reader.last_stable_offsets()
        write(connection, topic, range(3, 5))
        first = list(reader.to_end(ends, timeout_seconds=TIMEOUT_SECONDS))
        later: list[KafkaRecord] = []
        while len(later) < 4:
            later += reader.poll(1)
    assert ends == {(topic, 0): 3, (topic, 1): 3}
    assert keys(first) == [b"0/0", b"0/1", b"0/2", b"1/0", b"1/1", b"1/2"]
    assert keys(later) == [b"0/3", b"0/4", b"1/3", b"1/4"]


@pytest.mark.extended
def test_ranges_are_read_in_any_order_and_offsets_are_found_by_time(connection: KafkaConnection, topic: str) -> None:
    write(connection, topic, range(3, 300))
    with partition_reader(connection, [(topic, 0), (topic, 1)], "to test") as reader:
        for first, end in ((290, 300), (100, 290), (0, 2)):
            ranges = {(topic, partition): (first, end) for partition in (0, 1)}
            records = list(reader.between(ranges, timeout_seconds=TIMEOUT_SECONDS))
            assert sorted((one.partition, one.offset) for one in records) == [
                (partition, offset) for partition in (0, 1) for offset in range(first, end)
            ]
        last = list(reader.between({(topic, 1): (299, 300)}, timeout_seconds=TIMEOUT_SECONDS))
        assert [(one.partition, one.offset) for one in last] == [(1, 299)]
        assert list(reader.between({(topic, 0): (5, 5)}, timeout_seconds=TIMEOUT_SECONDS)) == []
        at = last[0].timestamp_ms
        found = reader.offsets_at(at)[topic, 1]
        assert found is not None
        assert found <= 299
        assert reader.offsets_at(at + 60_000) == {(topic, 0): None, (topic, 1): None}


@pytest.mark.extended
def test_a_record_has_all_that_kafka_keeps_of_it(connection: KafkaConnection, topic: str) -> None:
    with partition_reader(connection, [(topic, 1)], "to test", start={(topic, 1): 2}) as reader:
        (record,) = reader.to_end(timeout_seconds=TIMEOUT_SECONDS)
    assert record == KafkaRecord(topic, 1, 2, b"1/2", b"2", (("h", b"x"),), record.timestamp_ms, stamped_by_broker=True)
    assert record.timestamp_ms > 1_700_000_000_000


@pytest.mark.extended
def test_reading_from_the_end_gives_only_what_comes_then(connection: KafkaConnection, topic: str) -> None:
    with partition_reader(connection, [(topic, 0)], "to test", start="end") as reader:
        assert reader.poll(0.5) == []
        write(connection, topic, range(7, 8))
        later: list[KafkaRecord] = []
        while not later:
            later = reader.poll(1)
    assert keys(later) == [b"0/7"]


def test_aborted_records_are_skipped_and_an_empty_partition_ends(connection: KafkaConnection, unique_name: str) -> None:
    ensure_topics(connection, {unique_name: TopicSettings(2, 1)})
    producer = Producer({"bootstrap.servers": connection.bootstrap, "transactional.id": unique_name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(unique_name, b"never", partition=0)
    producer.flush(20)
    producer.abort_transaction(20)
    for committed, expected in ((True, []), (False, [b"never"])):
        with partition_reader(
            connection, [(unique_name, 0), (unique_name, 1)], "to test", committed=committed
        ) as reader:
            values = [record.value for record in reader.to_end(timeout_seconds=TIMEOUT_SECONDS)]
        assert values == expected


def test_wait_for_an_open_transaction_is_logged(
    connection: KafkaConnection, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    ensure_topics(connection, {unique_name: TopicSettings(1, 1)})
    producer = Producer({"bootstrap.servers": connection.bootstrap, "transactional.id": unique_name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(unique_name, b"later", partition=0)
    producer.flush(20)
    with pytest.raises(BrokerUnavailableError, match="a transaction stays open"):
        CommitLog(connection, unique_name, "shop", wait_seconds=4).read()
    producer.commit_transaction(20)
    (message,) = [record.getMessage() for record in caplog.records if "waits at" in record.getMessage()]
    for words in ("commit log of 'shop'", f"{unique_name!r}", "offset 0", "open", "4 seconds at most"):
        assert words in message
    caplog.clear()
    with partition_reader(connection, [(unique_name, 0)], "to test") as reader:
        assert [record.value for record in reader.to_end(timeout_seconds=TIMEOUT_SECONDS)] == [b"later"]
    assert "waits at" not in caplog.text


@pytest.mark.extended
def test_stored_batches_hold_the_committed_records_only(
    connection: KafkaConnection, topic: str, unique_name: str
) -> None:
    producer = Producer({"bootstrap.servers": connection.bootstrap, "transactional.id": unique_name})
    producer.init_transactions(20)
    for outcome in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(50):
            producer.produce(topic, b"v", b"%s %d" % (outcome.__name__.encode(), number), 0, headers=[("h", b"x")])
        producer.flush(20)
        outcome(20)
    write(connection, topic, range(3, 5))
    partitions = [(topic, 0), (topic, 1)]
    with partition_reader(connection, partitions, "to test") as reader:
        ends = reader.last_stable_offsets()
        records = list(reader.to_end(ends, timeout_seconds=TIMEOUT_SECONDS))
    with partition_reader(connection, partitions, "to test", stored_batches=True) as reader:
        batches = list(reader.to_end(ends, timeout_seconds=TIMEOUT_SECONDS))
    for _, partition in partitions:
        expected = [(record.key, record.value, record.headers) for record in records if record.partition == partition]
        own = [batch for batch in batches if batch.partition == partition]
        found = [
            (record.key, record.value, tuple(record.headers))
            for batch in own
            for record in records_of(batch.value or b"")
        ]
        assert found == expected
        firsts = {record.offset for record in records if record.partition == partition}
        assert firsts.issuperset(batch.offset for batch in own)
    assert len(batches) < len(records) == 60


@pytest.mark.extended
def test_broker_paused_during_a_read_is_an_error_with_broker_and_partition(
    kafka_broker: KafkaBroker, topic: str, still_broker: Callable[[], None]
) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap, timeout_seconds=1)
    with partition_reader(connection, [(topic, 0)], "to test") as reader:
        still_broker()
        with pytest.raises(BrokerUnavailableError, match="to test") as unreadable:
            list(reader.to_end(timeout_seconds=TIMEOUT_SECONDS))
    assert all(word in str(unreadable.value) for word in ("partition 0", topic, kafka_broker.bootstrap))


@pytest.mark.extended
def test_a_topic_that_is_removed_while_somebody_waits_for_more_is_an_error(
    kafka_broker: KafkaBroker, topic: str
) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap, timeout_seconds=1)
    with partition_reader(connection, [(topic, 0)], "to test") as reader:
        assert len(reader.poll(5)) == 3
        with connection.admin() as admin:
            admin.delete_topics([topic])
        with pytest.raises(TopicError, match="not in the cluster") as unreadable:
            deque(iter(partial(reader.poll, 1), None))
    assert topic in str(unreadable.value)


@pytest.mark.extended
def test_a_record_larger_than_a_fetch_is_read(connection: KafkaConnection, unique_name: str) -> None:
    ensure_topics(connection, {unique_name: schema_history_settings(1)})
    history = {"tables": os.urandom(1 << 20).hex()}
    writer = FencedWriter(connection, unique_name, [unique_name], 10)
    writer.take_over()
    SchemaLog(connection, unique_name, "shop").save(history, writer)
    writer.close()
    assert SchemaLog(connection, unique_name, "shop").load() == history


@pytest.mark.extended
def test_broker_killed_during_a_read_is_an_error_with_broker_and_partition(
    kafka_broker: KafkaBroker, topic: str
) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap, timeout_seconds=1)
    with partition_reader(connection, [(topic, 0)], "to test") as reader:
        kafka_broker.kill()
        try:
            with pytest.raises(BrokerUnavailableError, match="to test") as unreadable:
                list(reader.to_end(timeout_seconds=TIMEOUT_SECONDS))
        finally:
            kafka_broker.start()
    assert all(word in str(unreadable.value) for word in ("partition 0", topic, kafka_broker.bootstrap))


@pytest.mark.extended
def test_logs_whose_broker_stopped_are_a_retryable_error(
    kafka_broker: KafkaBroker, topic: str, still_broker: Callable[[], None]
) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap, timeout_seconds=1)
    still_broker()
    for read in (CommitLog(connection, topic, "shop").read, SchemaLog(connection, topic, "shop").load):
        with pytest.raises(BrokerUnavailableError, match=kafka_broker.bootstrap):
            read()
