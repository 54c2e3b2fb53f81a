"""Finished record batches in Kafka's transactions: complete, in order, once, and each refusal as its own error."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from integration.kafka_wire import record_batch, rows_of
from kafka.admin import ConfigResource, ConfigResourceType

from changefeed.errors import BadRecordError, BrokerUnavailableError, FencedError, TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence, transactional_id
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics
from changefeed.kafka.transactions import Transactions
from changefeed.model.publish_settings import PublishSettings
from devstack.kafka import KafkaBroker

pytestmark = pytest.mark.extended

_SETTINGS = PublishSettings(transaction_seconds=5, transaction_timeout_seconds=15)
_SHORT = PublishSettings(transaction_seconds=1, transaction_timeout_seconds=4)


@pytest.fixture
def connection(kafka_broker: KafkaBroker) -> KafkaConnection:
    return KafkaConnection(kafka_broker.bootstrap)


@pytest.fixture
def topic(connection: KafkaConnection, unique_name: str) -> str:
    ensure_topics(connection, {unique_name: TopicSettings(3, 1)})
    return unique_name


@pytest.fixture
def transactions(connection: KafkaConnection, topic: str) -> Iterator[Transactions]:
    ours = Transactions(connection, f"changefeed.{topic}.0", _SETTINGS, [topic])
    ours.take_over()
    yield ours
    ours.close()


def _never() -> None:
    raise AssertionError("nothing is there to wait for")


def _send(transactions: Transactions, topic: str, partition: int, rows: range) -> None:
    transactions.open()
    transactions.send_batch(topic, partition, *record_batch(rows))


def _send_one_by_one(transactions: Transactions, topic: str) -> None:
    for row in range(10, 1000):
        _send(transactions, topic, 0, range(row, row + 1))
        transactions.flush(lambda: None)


def _send_to(transactions: Transactions, topic: str, partitions: Iterable[int], look: Callable[[], None]) -> None:
    for partition in partitions:
        _send(transactions, topic, partition, range(10, 20))
    transactions.flush(look)


def test_batches_and_single_records_arrive_in_the_order_that_they_were_given_in(
    transactions: Transactions, connection: KafkaConnection, topic: str
) -> None:
    deliveries, expected = [], []
    for round_number in range(3):
        transactions.open()
        for codec in (0, 1, 3, 4):  # none, gzip, lz4, zstd
            first = 1000 * round_number + 100 * codec
            deliveries.append(transactions.send_batch(topic, 1, *record_batch(range(first, first + 50), codec=codec)))
            deliveries.append(transactions.send(topic, 1, None, b"%d" % (first + 50), []))
            deliveries.append(transactions.send(topic, 1, bytes(100_000), b"%d" % (first + 51), [("h", b"x")]))
            expected += range(first, first + 52)
        transactions.flush(_never)
        transactions.commit("three times")
    assert rows_of(connection.bootstrap, topic)[1] == expected
    offsets = [delivery.offset for delivery in deliveries]
    assert [delivery.error for delivery in deliveries] == [None] * len(deliveries)
    assert offsets[:5] == [0, 50, 51, 52, 102]
    assert offsets == sorted(offsets, key=lambda offset: offset or 0)


def test_a_record_that_is_all_null_but_its_headers_is_a_record(transactions: Transactions, topic: str) -> None:
    transactions.open()
    delivery = transactions.send(topic, 0, None, None, [("h", b"x")])
    transactions.flush(_never)
    transactions.commit("it")
    assert (delivery.offset, delivery.error) == (0, None)


def test_aborted_records_are_invisible_and_later_ones_visible(
    transactions: Transactions, connection: KafkaConnection, topic: str
) -> None:
    _send(transactions, topic, 0, range(10))
    transactions.flush(_never)
    _send(transactions, topic, 1, range(10))  # maybe not sent yet
    transactions.abort()
    _send(transactions, topic, 0, range(10, 20))
    _send(transactions, topic, 1, range(20, 30))
    transactions.flush(_never)
    transactions.commit("the rest")
    assert rows_of(connection.bootstrap, topic) == {0: list(range(10, 20)), 1: list(range(20, 30)), 2: []}


def test_a_producer_fenced_in_mid_batch_stops_and_does_not_take_its_name_back(
    transactions: Transactions, connection: KafkaConnection, topic: str
) -> None:
    _send(transactions, topic, 0, range(10))
    transactions.flush(_never)
    newer = Transactions(connection, transactions.name, _SETTINGS, [topic])
    newer.take_over()
    newer.open()
    newer.send_batch(topic, 0, *record_batch(range(100, 110)))
    begun = time.monotonic()
    with pytest.raises(FencedError, match="took over"):
        _send_one_by_one(transactions, topic)
    with pytest.raises(FencedError):
        transactions.commit("what is not ours")
    transactions.close()
    assert time.monotonic() - begun < 60
    newer.flush(lambda: None)
    newer.commit("the newer one's")
    newer.open()
    newer.send_batch(topic, 0, *record_batch(range(110, 120)))
    newer.flush(lambda: None)
    newer.commit("the newer one's")
    newer.close()
    assert rows_of(connection.bootstrap, topic)[0] == list(range(100, 120))


def test_new_partition_in_a_fenced_transaction_is_refused(
    transactions: Transactions, connection: KafkaConnection, topic: str
) -> None:
    _send(transactions, topic, 0, range(10))
    newer = Transactions(connection, transactions.name, _SETTINGS, [topic])
    newer.take_over()
    with pytest.raises(FencedError):
        _send_to(transactions, topic, [2], lambda: None)
    newer.close()
    assert rows_of(connection.bootstrap, topic) == {0: [], 1: [], 2: []}


def test_fencing_stops_all_earlier_producers_however_many(connection: KafkaConnection, topic: str) -> None:
    log = f"{topic}.log"
    ensure_topics(connection, {log: commit_log_settings(1)})
    earlier = [Transactions(connection, transactional_id(topic, task), _SETTINGS, [topic]) for task in (0, 17, 50)]
    for each in earlier:
        each.take_over()
        _send(each, topic, 0, range(10))
        each.flush(_never)
    with Lease(connection, log, topic, 5) as lease:
        fence(lease, 40)  # the cluster knows of number 50
    for each in earlier:
        with pytest.raises(FencedError):
            each.commit("what is old")
        each.close()
    assert rows_of(connection.bootstrap, topic)[0] == []


def test_batch_too_large_for_its_topic_is_refused_completely(
    transactions: Transactions, connection: KafkaConnection, topic: str
) -> None:
    """And not split: kafka-python's own batches are."""
    with connection.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "5000"})])
    transactions.open()
    fits = transactions.send_batch(topic, 1, *record_batch(range(10)))
    large = transactions.send_batch(
        topic, 0, *record_batch(range(100), value=b"x" * 100), what="orders at bin.000007:4"
    )
    with pytest.raises(BadRecordError, match=r"orders at bin\.000007:4.*MessageSizeTooLarge") as raised:
        transactions.flush(lambda: None)
    assert large.error is raised.value
    assert fits.error is None
    with pytest.raises(BadRecordError):
        transactions.commit("a part")
    transactions.close()
    assert rows_of(connection.bootstrap, topic) == {0: [], 1: [], 2: []}
    assert rows_of(connection.bootstrap, topic, "read_uncommitted")[0] == []


def test_batches_and_records_as_large_as_their_topic_takes_pass(connection: KafkaConnection, unique_name: str) -> None:
    ensure_topics(connection, {unique_name: TopicSettings(1, 1, {"max.message.bytes": str(70 << 20)})})
    transactions = Transactions(connection, f"changefeed.{unique_name}.0", _SETTINGS, [unique_name])
    transactions.take_over()
    transactions.open()
    transactions.send_batch(unique_name, 0, *record_batch([0]))
    transactions.send(unique_name, 0, bytes(60 << 20), b"1", [])
    transactions.send_batch(unique_name, 0, *record_batch([2, 3]))
    transactions.flush(lambda: None)
    transactions.commit("60 MB")
    transactions.close()
    assert rows_of(connection.bootstrap, unique_name) == {0: [0, 1, 2, 3]}


def test_bytes_in_flight_stay_below_the_queue_limit(connection: KafkaConnection, topic: str) -> None:
    settings = PublishSettings(queue_bytes=200_000)
    transactions = Transactions(connection, f"changefeed.{topic}.0", settings, [topic])
    transactions.take_over()
    transactions.open()
    most = 0
    for number in range(60):
        transactions.send_batch(topic, number % 3, *record_batch([number], value=bytes(60_000)))
        most = max(most, transactions._under_way_bytes)
    transactions.flush(_never)
    transactions.commit("all")
    transactions.close()
    assert 60_000 < most <= 200_000
    assert sorted(itertools.chain(*rows_of(connection.bootstrap, topic).values())) == list(range(60))


def test_topic_removed_with_queued_batches_is_an_error_in_bounded_time(connection: KafkaConnection, topic: str) -> None:
    transactions = Transactions(connection, f"changefeed.{topic}.0", _SHORT, [topic])
    transactions.take_over()
    _send(transactions, topic, 0, range(10))
    transactions.flush(_never)
    with connection.admin() as admin:
        admin.delete_topics([topic])
    time.sleep(1)
    begun = time.monotonic()
    looked = []

    def look() -> None:
        looked.append(time.monotonic())
        if len(looked) > 1:
            raise TopicError("it was removed")

    with pytest.raises((TopicError, BrokerUnavailableError)):
        _send_to(transactions, topic, (0, 2), look)
    transactions.close()
    assert time.monotonic() - begun < 60


def test_close_ends_threads_and_logs_nothing_in_any_state(connection: KafkaConnection, topic: str) -> None:
    before = threading.active_count()
    for stage in range(4):
        transactions = Transactions(connection, f"changefeed.{topic}.0", _SETTINGS, [topic])
        if stage > 0:
            transactions.take_over()
        if stage > 1:
            _send(transactions, topic, 0, range(10))
        if stage > 2:
            transactions.flush(lambda: None)
        transactions.close()
        transactions.close()
    assert threading.active_count() == before
    assert rows_of(connection.bootstrap, topic)[0] == []


def test_bytes_that_are_no_batch_of_so_many_records_are_not_sent(transactions: Transactions, topic: str) -> None:
    transactions.open()
    batch, count = record_batch(range(10))
    for odd, messages in ((batch, count - 1), (batch[:-1], count), (batch + b"\0", count), (b"", 0), (batch[:40], 1)):
        with pytest.raises(ValueError, match="batch"):
            transactions.send_batch(topic, 0, odd, messages)
    transactions.commit("nothing")


def test_unreachable_broker_is_an_error_within_the_connection_timeout(topic: str) -> None:
    away = Transactions(KafkaConnection("127.0.0.1:9", timeout_seconds=0.5), topic, _SETTINGS, [topic])
    begun = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9"):
        away.take_over()
    away.close()
    assert time.monotonic() - begun < 60
