"""The commit log returns all committed records, whatever is open or aborted in it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from integration.kafka_pipeline import Pipeline, batches_of
from kafka.admin import ConfigResource, ConfigResourceType

from changefeed.errors import BrokerUnavailableError, CheckpointError, FencedError, TopicError
from changefeed.kafka.commit_log import owned_log
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.periods import latest_periods
from changefeed.kafka.commit_log.records import AttemptRecord, ProgressRecord, SealRecord
from changefeed.kafka.commit_log.snapshots import PauseRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.kafka.lease import Lease
from changefeed.kafka.log_retention import check_log_retention
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, TopicPartitionReceipt
from changefeed.model.window import Window
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.process import run_server


@pytest.fixture
def pipeline(kafka_broker: KafkaBroker, unique_name: str) -> Pipeline:
    return Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name)


@pytest.fixture
def owned(pipeline: Pipeline) -> Iterator[OwnedLog]:
    """The log of the pipeline, to be written as by who holds the lease, and without its claims."""
    writer = FencedWriter(pipeline.connection, pipeline.name, [pipeline.log_topic], 10)
    writer.take_over()
    yield OwnedLog(pipeline.connection, pipeline.log_topic, pipeline.name, writer=writer)
    writer.close()


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


def test_reader_waits_for_progress_after_an_open_transaction(pipeline: Pipeline) -> None:
    """The last stable offset is before the stranger's record, and our committed progress after it."""
    stranger = _stranger(pipeline)
    publisher = pipeline.publisher()
    publisher._transactions.take_over()  # without reading the log, which would wait
    publisher.publish(batches_of(pipeline.topic, 0, range(100)))
    with pytest.raises(BrokerUnavailableError, match="stays open"):
        replace(pipeline.log, wait_seconds=1).read()
    timer = threading.Timer(1.0, stranger.abort_transaction)
    timer.start()
    state = pipeline.log.read()
    timer.join()
    assert state.progress[pipeline.topic, 0].messages == 100


def test_records_before_an_open_transaction_are_read_without_waiting(pipeline: Pipeline, owned: OwnedLog) -> None:
    """As a plan reads it while another run is alive, or when one was killed: its own windows are before it."""
    owned.seal(manifest(1))
    stranger = _stranger(pipeline)
    owned.seal(manifest(2))
    assert list(pipeline.log.read(open_seconds=0.5).seals) == [1]
    stranger.abort_transaction()
    assert list(pipeline.log.read(open_seconds=0.5).seals) == [1, 2]


def test_a_log_that_ends_in_aborted_records_is_read_to_its_end(pipeline: Pipeline) -> None:
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(100)))
    for _ in range(3):
        _stranger(pipeline).abort_transaction()
    begun = time.monotonic()
    assert list(pipeline.log.read().progress) == [(pipeline.topic, 0)]
    assert time.monotonic() - begun < 30


def test_seals_are_kept_in_order_and_only_the_last_ones(pipeline: Pipeline, owned: OwnedLog) -> None:
    for window in range(1, 13):
        owned.seal(manifest(window), pipeline.log.read(), keep=3)
    state = pipeline.log.read()
    assert list(state.seals) == [10, 11, 12]
    assert state.seals[12] == manifest(12)


def test_writer_that_lost_the_lease_merges_no_seals(pipeline: Pipeline, owned: OwnedLog) -> None:
    for window in range(1, 7):
        owned.seal(manifest(window), pipeline.log.read(), keep=5)
    known = pipeline.log.read()
    assert [sums.last for sums in latest_periods(known, 10)] == [1]
    writer = FencedWriter(pipeline.connection, pipeline.name, [pipeline.log_topic], 10)
    writer.take_over()
    with pytest.raises(FencedError):
        owned.seal(manifest(7), known, keep=3)
    assert pipeline.log.read() == known
    replace(owned, writer=writer).seal(manifest(7), known, keep=4)
    writer.close()
    state = pipeline.log.read()
    assert list(state.seals) == [4, 5, 6, 7]
    assert sum(sums.windows for sums in latest_periods(state, 10)) == 3


def wide(window: int, pipeline: str, tables: int) -> Manifest:
    """A manifest of tables whose names are as long as Kafka allows, and do not compress well."""
    letters = random.Random(window)
    names = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=249)) for _ in range(tables)]
    receipts = tuple(
        TopicPartitionReceipt(name, partition, 10, 0, 12_345, 0, 100, 110) for name in names for partition in range(3)
    )
    return replace(manifest(window, pipeline), topics=receipts, rows={name: {"c": 30} for name in names})


def test_batch_that_unpacks_to_more_than_the_log_ever_writes_is_refused(pipeline: Pipeline, owned: OwnedLog) -> None:
    """200 MB of blanks are 20 kB to whoever may write to the topic, and of what compression it keeps."""
    owned.seal(manifest(1))
    kept = ConfigResource(ConfigResourceType.TOPIC, pipeline.log_topic, {"compression.type": "producer"})
    with pipeline.connection.admin() as admin:
        admin.alter_configs([kept])
    large = {"compression.type": "zstd", "message.max.bytes": 1_000_000_000}
    producer = Producer({"bootstrap.servers": pipeline.connection.bootstrap, **large})
    refused: list[object] = []
    key = ProgressRecord.key_of("stranger", "x", 0)
    producer.produce(pipeline.log_topic, b" " * (200 << 20), key, 0, on_delivery=lambda error, _: refused.append(error))
    assert (producer.flush(30), refused) == (0, [None])
    for read in (pipeline.log.read, pipeline.log.read_all, pipeline.log.entries):
        with pytest.raises(TopicError, match=r"unpacks to more than 134,217,728 bytes. Only changefeed may write"):
            read()


@pytest.mark.parametrize("bound", ["_MOST_LOG_BYTES", "_MOST_LOG_SECONDS"])
def test_log_without_an_end_is_not_read_for_ever(
    pipeline: Pipeline, owned: OwnedLog, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    owned.seal(manifest(1))
    monkeypatch.setattr(f"changefeed.kafka.partition_reader.{bound}", 0)
    with pytest.raises(TopicError, match="and has more: expected at most"):
        pipeline.log.read()


def test_a_window_of_5000_tables_with_long_names_is_sealed(pipeline: Pipeline, owned: OwnedLog) -> None:
    sealed = wide(1, pipeline.name, 5000)
    owned.seal(sealed)
    assert pipeline.log.read().seals == {1: sealed}


def test_seals_are_bounded_by_bytes_and_those_of_a_run_stay(
    pipeline: Pipeline, owned: OwnedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_log, "KEPT_SEAL_BYTES", 90_000)
    for window in range(1, 6):
        owned.seal(wide(window, pipeline.name, 100), pipeline.log.read())
    assert list(pipeline.log.read().seals) == [4, 5]
    for window in range(6, 11):
        owned.seal(wide(window, pipeline.name, 100), pipeline.log.read(), uncommitted=4)
    assert list(pipeline.log.read().seals) == [7, 8, 9, 10]


def test_a_seal_that_the_topic_does_not_take_says_what_to_raise(pipeline: Pipeline) -> None:
    topic = f"{pipeline.name}.small"
    ensure_topics(pipeline.connection, {topic: TopicSettings(1, 1, {"max.message.bytes": "10000"})})
    with (
        Lease(pipeline.connection, topic, pipeline.name, 5) as lease,
        pytest.raises(TopicError, match=rf"max\.message\.bytes of '{topic}' to \d+ or more"),
    ):
        lease.log().seal(wide(1, pipeline.name, 100))


def test_sealing_a_window_twice_is_harmless(pipeline: Pipeline, owned: OwnedLog) -> None:
    for _ in range(2):
        owned.seal(manifest(1), pipeline.log.read(), keep=3)
    assert pipeline.log.read().seals == {1: manifest(1)}


def test_dead_tables_are_forgotten(pipeline: Pipeline, owned: OwnedLog) -> None:
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(10)) + batches_of(pipeline.topic, 1, range(10)))
    assert owned.forget(["another"], owned.read()) == 0
    assert owned.forget([pipeline.topic], owned.read()) == 2
    assert pipeline.log.read().progress == {}
    with pipeline.publisher() as publisher:
        receipts = publisher.publish(batches_of(pipeline.topic, 0, range(10)))
    assert receipts[0].messages == 10


def test_identities_share_a_log_and_do_not_see_each_other(pipeline: Pipeline, owned: OwnedLog) -> None:
    backfill = replace(owned, identity=f"{pipeline.name}/backfill")
    owned.seal(manifest(1))
    backfill.seal(manifest(1, "backfill"))
    backfill.keep(AttemptRecord("b"))
    assert [entry.read() for entry in pipeline.log.read().entries] == [SealRecord(manifest(1))]
    assert pipeline.log.identities() == [pipeline.name, backfill.identity]
    owned.keep(AttemptRecord("p"))
    assert pipeline.log.identities() == [backfill.identity, pipeline.name], "who wrote last comes last"
    assert backfill.forget_everything() == 2
    assert pipeline.log.identities() == [pipeline.name]
    assert pipeline.log.read().seals == {1: manifest(1)}


@pytest.mark.extended
def test_compaction_removes_records_and_the_log_still_begins_at_0(unique_name: str, tmp_path: Path) -> None:
    """Compaction never moves the first offset above 0, which is the sign of retention."""
    properties = {"log.cleaner.backoff.ms": 100, "log.cleaner.min.cleanable.ratio": 0.01}
    with run_server(KafkaBroker(tmp_path / "own", properties=properties, owner=ProcessId.own(), quick=True)) as broker:
        connection, topic = KafkaConnection(broker.bootstrap), f"{unique_name}.log"
        configs = {**commit_log_settings(1).configs, "segment.bytes": str(1 << 20), "delete.retention.ms": "0"}
        ensure_topics(connection, {topic: TopicSettings(1, 1, configs)})
        writer = FencedWriter(connection, unique_name, [topic], 10)
        writer.take_over()
        value, deadline = random.Random(0).randbytes(60_000), time.monotonic() + 120
        while not (offsets := _offsets(connection, topic)) or offsets[0] == 0:
            assert time.monotonic() < deadline, "the broker does not compact"
            writer.write(topic, {b"[%d]" % number: value for number in range(20)}, "to fill the log")
        writer.close()
        check_log_retention(connection, [topic])


def _offsets(connection: KafkaConnection, topic: str) -> list[int]:
    with partition_reader(connection, [(topic, 0)], "to look") as reader:
        return [record.offset for record in reader.to_end(timeout_seconds=30)]


def test_a_record_in_the_place_of_one_of_ours_stops_the_run(pipeline: Pipeline) -> None:
    producer = Producer({"bootstrap.servers": pipeline.connection.bootstrap})
    producer.produce(pipeline.log_topic, b"what?", b"not json", 0)
    producer.flush(20)
    assert not pipeline.log.read().seals
    producer.produce(pipeline.log_topic, b"what?", SealRecord(manifest(1)).key(pipeline.name), 0)
    producer.flush(20)
    with pytest.raises(CheckpointError, match="only changefeed may write"):
        _ = pipeline.log.read().seals[1]
    with pipeline.connection.admin() as admin:  # a first run of any pipeline on this broker would warn of it
        admin.delete_topics([pipeline.log_topic])


def test_missing_log_is_an_error(pipeline: Pipeline) -> None:
    connection = replace(pipeline.connection, timeout_seconds=2)
    missing = CommitLog(connection, f"{pipeline.name}.missing", pipeline.name)
    with pytest.raises(TopicError, match=r"missing"):
        missing.read()
    with pytest.raises((TopicError, BrokerUnavailableError), match=r"missing"):
        missing.note(PauseRecord())
