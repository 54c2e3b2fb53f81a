"""A process that remembers what it read of a log gets the same state as one that reads all of it."""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka import Producer
from integration.kafka_pipeline import Pipeline
from kafka.admin import KafkaAdminClient
from seeds import of_this_test

from changefeed import kept_clients
from changefeed.kafka import log_memory
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import commit_log_settings, ensure_topics
from devstack.kafka import KafkaBroker

KEYS = 12


@pytest.fixture
def pipeline(kafka_broker: KafkaBroker, unique_name: str) -> Pipeline:
    return Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name)


@pytest.fixture(autouse=True)
def _remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process keeps clients, and remembers logs, until the end of the test."""
    monkeypatch.setattr(kept_clients, "_is_on", True)
    monkeypatch.setattr(kept_clients, "_idle", [])
    monkeypatch.setattr(log_memory, "_memories", [])


def read(pipeline: Pipeline) -> CommitLogState:
    return CommitLog(pipeline.connection, pipeline.log_topic, pipeline.name).read()


def read_afresh(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> CommitLogState:
    with monkeypatch.context() as forgetting:
        forgetting.setattr(kept_clients, "_is_on", False)
        return read(pipeline)


def random_record(pipeline: Pipeline, rng: random.Random) -> tuple[bytes, bytes | None]:
    key = f'["{pipeline.name}","attempt","{rng.randrange(KEYS)}"]'.encode()
    match rng.randrange(5):
        case 0:
            return key, None
        case 1:
            return f"of somebody else {rng.randrange(3)}".encode(), b"x"
        case _:
            return key, f'{{"tasks":{rng.randrange(100)}}}'.encode()


def test_what_is_remembered_is_what_the_log_has(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = of_this_test()
    producer = Producer(
        {"bootstrap.servers": pipeline.connection.bootstrap, "transactional.id": f"{pipeline.name}-test"}
    )
    producer.init_transactions()
    for _ in range(25):
        producer.begin_transaction()
        for _ in range(rng.randrange(1, 6)):
            key, value = random_record(pipeline, rng)
            producer.produce(pipeline.log_topic, value, key, partition=0)
        producer.flush()
        if rng.randrange(4):
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        if rng.randrange(3):
            assert read(pipeline).entries == read_afresh(pipeline, monkeypatch).entries
    assert read(pipeline).entries


def test_a_reading_begins_after_the_last_known_record(pipeline: Pipeline) -> None:
    with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 5) as lease:
        fence(lease)
    read(pipeline)
    memory = log_memory.log_memory(pipeline.connection, pipeline.log_topic, "entries", lambda: None)
    assert memory.last is not None
    known = memory.last.offset
    assert memory.start == {(pipeline.log_topic, 0): known}
    with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 5) as lease:
        fence(lease)
    assert read(pipeline).attempt == lease.attempt
    assert memory.last.offset > known


def test_a_log_that_was_created_again_is_read_from_its_start(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 5) as lease:
            fence(lease)
    assert read(pipeline).attempt == lease.attempt
    admin = KafkaAdminClient(bootstrap_servers=pipeline.connection.bootstrap)
    admin.delete_topics([pipeline.log_topic])
    admin.close()
    deadline = time.monotonic() + 60
    while True:
        try:
            ensure_topics(pipeline.connection, {pipeline.log_topic: commit_log_settings()})
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            break
    assert read(pipeline).entries == ()
    for _ in range(5):  # more records than the first log had
        with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 5) as lease:
            fence(lease)
    assert read(pipeline).entries == read_afresh(pipeline, monkeypatch).entries
    assert read(pipeline).attempt == lease.attempt


def test_a_lease_that_remembers_sees_the_claim_of_another_process(pipeline: Pipeline) -> None:
    def lease() -> Lease:
        return Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 2)

    with lease() as first:
        fence(first, 7)
    with lease() as second:
        assert second.earlier_tasks == 7
    with lease() as third:
        began = time.monotonic()
        assert third.earlier_tasks == 7
        third._done.set()  # as a process that was killed: its claim is neither repeated nor returned
        third._beat.join()
        third._first = -1
    with lease():
        assert time.monotonic() - began > 1, "the claim that was not returned is watched until it is over"
