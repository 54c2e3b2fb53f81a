"""The commit log tells what is committed, all of it, whatever stands open or was aborted in it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from integration.kafka_pipeline import Pipeline, blocks_of

from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import BrokerUnavailableError, CheckpointError, TopicError
from changefeed.kafka.commit_log import CommitLog, CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_record import AttemptRecord, ProgressRecord, SealRecord
from changefeed.manifest import Manifest
from changefeed.window import Window
from devstack.kafka import KafkaBroker


@pytest.fixture
def pipeline(kafka_broker: KafkaBroker, unique_name: str) -> Pipeline:
    return Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name)


def manifest(window: int, pipeline: str = "shop") -> Manifest:
    start, head = (BinlogCoordinates("bin.000001", 100 * number) for number in (window, window + 1))
    return Manifest(Window(pipeline, window, "uuid", start, head, "", "", 0), 100, 1, 1, {}, 0, ())


def _stranger(pipeline: Pipeline) -> Producer:
    """A producer with a transaction open in the commit log."""
    producer = Producer(
        {"bootstrap.servers": pipeline.connection.bootstrap, "transactional.id": f"{pipeline.name}-stranger"}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(pipeline.log_topic, b"{}", ProgressRecord.key_of("stranger", "x", 0), 0)
    producer.flush(20)
    return producer


def test_an_empty_log_says_nothing(pipeline: Pipeline) -> None:
    assert pipeline.log.read() == CommitLogState()


def test_progress_behind_an_open_transaction_is_waited_for_not_passed_over(pipeline: Pipeline) -> None:
    """The last stable offset stands before the stranger's record, and our committed progress behind it."""
    stranger = _stranger(pipeline)
    publisher = pipeline.publisher()
    publisher._transactions.take_over()  # without reading the log, which would wait
    publisher.publish(blocks_of(pipeline.topic, 0, range(100)))
    with pytest.raises(BrokerUnavailableError, match="stays open"):
        replace(pipeline.log, wait_seconds=1).read()
    timer = threading.Timer(1.0, stranger.abort_transaction)
    timer.start()
    state = pipeline.log.read()
    timer.join()
    assert state.progress[pipeline.topic, 0].messages == 100


def test_a_log_that_ends_in_aborted_records_is_read_to_its_end(pipeline: Pipeline) -> None:
    with pipeline.publisher() as publisher:
        publisher.publish(blocks_of(pipeline.topic, 0, range(100)))
    for _ in range(3):
        _stranger(pipeline).abort_transaction()
    begun = time.monotonic()
    assert list(pipeline.log.read().progress) == [(pipeline.topic, 0)]
    assert time.monotonic() - begun < 5


def test_seals_are_kept_in_order_and_only_the_last_ones(pipeline: Pipeline) -> None:
    for window in range(1, 13):
        known = pipeline.log.read().seals
        pipeline.log.seal(manifest(window), keep=3, sealed=known)
    state = pipeline.log.read()
    assert list(state.seals) == [10, 11, 12]
    assert state.seals[12] == manifest(12)


def test_sealing_a_window_twice_is_harmless(pipeline: Pipeline) -> None:
    for _ in range(2):
        pipeline.log.seal(manifest(1), keep=3, sealed=pipeline.log.read().seals)
    assert pipeline.log.read().seals == {1: manifest(1)}


def test_dead_tables_are_forgotten(pipeline: Pipeline) -> None:
    with pipeline.publisher() as publisher:
        publisher.publish(blocks_of(pipeline.topic, 0, range(10)) + blocks_of(pipeline.topic, 1, range(10)))
    assert pipeline.log.forget(["another"]) == 0
    assert pipeline.log.forget([pipeline.topic]) == 2
    assert pipeline.log.read().progress == {}
    with pipeline.publisher() as publisher:
        receipts = publisher.publish(blocks_of(pipeline.topic, 0, range(10)))
    assert receipts[0].messages == 10


def test_identities_share_a_log_and_do_not_see_each_other(pipeline: Pipeline) -> None:
    backfill = CommitLog(pipeline.connection, pipeline.log_topic, f"{pipeline.name}/backfill")
    pipeline.log.seal(manifest(1))
    backfill.seal(manifest(1, "backfill"))
    backfill.keep(AttemptRecord("b"))
    assert pipeline.log.read() == CommitLogState((SealRecord(manifest(1)),))
    assert pipeline.log.identities() == [pipeline.name, backfill.identity]
    pipeline.log.keep(AttemptRecord("p"))
    assert pipeline.log.identities() == [backfill.identity, pipeline.name], "who wrote last comes last"
    assert backfill.forget_everything() == 2
    assert pipeline.log.identities() == [pipeline.name]
    assert pipeline.log.read().seals == {1: manifest(1)}


def test_a_record_that_is_not_ours_stops_the_run(pipeline: Pipeline) -> None:
    producer = Producer({"bootstrap.servers": pipeline.connection.bootstrap})
    producer.produce(pipeline.log_topic, b"what?", b"not json", 0)
    producer.flush(20)
    with pytest.raises(CheckpointError, match="not json"):
        pipeline.log.read()


def test_a_log_that_is_not_there_is_told(pipeline: Pipeline) -> None:
    connection = replace(pipeline.connection, timeout_seconds=2)
    missing = CommitLog(connection, f"{pipeline.name}.missing", pipeline.name)
    with pytest.raises(TopicError, match=r"missing"):
        missing.read()
    with pytest.raises((TopicError, BrokerUnavailableError), match=r"missing"):
        missing.keep(AttemptRecord("a"))
