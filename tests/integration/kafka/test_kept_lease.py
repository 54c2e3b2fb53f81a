"""The lease of a continuous run: kept between windows, until another process wants it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, Semaphore

import pytest
from integration.kafka_pipeline import Pipeline, committed

from changefeed.errors import BrokerUnavailableError, ChangefeedError, PipelineBusyError
from changefeed.kafka import kept_lease
from changefeed.kafka.commit_log.records import AttemptRecord, ClaimRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence
from changefeed.kafka.kept_lease import KeptLease
from changefeed.kafka.lease import Lease
from devstack.kafka import KafkaBroker

HOLDER = """\
import sys
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease

bootstrap, topic, name = sys.argv[1:]
with Lease(KafkaConnection(bootstrap), topic, name, 5, timeout_seconds=60):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def pipeline(kafka_broker: KafkaBroker, unique_name: str) -> Pipeline:
    return Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name)


@pytest.fixture
def kept() -> Iterator[KeptLease]:
    with closing(KeptLease()) as lease:
        yield lease


def records(pipeline: Pipeline, kind: str) -> list[bytes | None]:
    """The values of the records of ``kind`` in the commit log."""
    found = committed(pipeline.connection.bootstrap, pipeline.log_topic, "read_uncommitted")
    return [record.value for record in found if f'"{kind}"'.encode() in record.key]


def use(kept: KeptLease, pipeline: Pipeline, tasks: int = 1, seconds: float = 5) -> str:
    """Use the lease as a window does; the attempt. The claim is repeated each fifth of ``seconds``."""
    with kept.use(Lease(pipeline.connection, pipeline.log_topic, pipeline.name, seconds)) as lease:
        return fence(lease, tasks)


def test_windows_that_follow_one_another_have_one_claim(pipeline: Pipeline, kept: KeptLease) -> None:
    attempts = {use(kept, pipeline, seconds=600) for _ in range(3)}
    assert len(attempts) == 1
    claims = records(pipeline, ClaimRecord.kind)
    assert len(claims) == 2
    assert None not in claims
    assert len(records(pipeline, AttemptRecord.kind)) == 1
    kept.close()
    assert records(pipeline, ClaimRecord.kind)[2:] == [None]
    assert use(kept, pipeline) not in attempts


def test_more_tasks_are_fenced_under_the_same_claim(pipeline: Pipeline, kept: KeptLease) -> None:
    assert use(kept, pipeline, 1, 600) == use(kept, pipeline, 3, 600) == use(kept, pipeline, 2, 600)
    assert [b'"tasks":3' in (value or b"") for value in records(pipeline, AttemptRecord.kind)] == [False, True]


def test_a_lease_whose_writer_has_failed_is_not_kept(pipeline: Pipeline, kept: KeptLease) -> None:
    new = Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 5)
    with kept.use(new) as lease:
        first = fence(lease, 1)
        with pytest.raises(ChangefeedError):
            lease.writer.write(f"{pipeline.name}.missing", {b"key": b"x" * (9 << 20)}, "to try it")
    assert use(kept, pipeline) != first
    use(kept, pipeline)


def test_another_process_gets_the_lease_between_two_windows(pipeline: Pipeline, kept: KeptLease) -> None:
    before = use(kept, pipeline)
    names = [pipeline.connection.bootstrap, pipeline.log_topic, pipeline.name]
    command = [sys.executable, "-c", HOLDER, *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        while len(records(pipeline, ClaimRecord.kind)) < 3:
            assert other.poll() is None
            time.sleep(0.1)
        with ThreadPoolExecutor(1) as thread:
            held = thread.submit(other.stdout.readline)
            with pytest.raises(PipelineBusyError, match="which is alive"):
                use(kept, pipeline)
            assert held.result() == "held\n"
        other.stdin.close()
        assert other.wait() == 0
    assert use(kept, pipeline) != before


def test_a_claim_is_not_repeated_after_its_process_slept(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run has taken over meanwhile. To that one's next window the claim would be that of a live run. So it is
    after Kafka was away for this run alone."""
    claim, is_asleep, attempts = Lease._claim, Event(), list[str]()

    def claim_unless_asleep(lease: Lease) -> int:
        if lease.attempt in attempts and is_asleep.is_set():
            raise BrokerUnavailableError("asleep")
        return claim(lease)

    with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 2) as asleep:
        attempts.append(asleep.attempt)
        monkeypatch.setattr(Lease, "_claim", claim_unless_asleep)
        is_asleep.set()
        with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 2):
            is_asleep.clear()
            asleep._beat.join(60)
            assert not asleep._beat.is_alive()
        with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 2) as later:
            fence(later, 1)


@pytest.mark.extended
def test_a_claim_is_repeated_again_after_kafka_was_away(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was away for longer than the lease: the run goes on, and no other may take it for dead."""
    claim, is_away, failed, repeated = Lease._claim, Event(), Semaphore(0), Semaphore(0)

    def claim_unless_away(lease: Lease) -> int:
        if is_away.is_set():
            failed.release()
            raise BrokerUnavailableError("away")
        offset = claim(lease)
        repeated.release()
        return offset

    with Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 2):
        monkeypatch.setattr(Lease, "_claim", claim_unless_away)
        is_away.set()
        for _ in range(7):
            assert failed.acquire(timeout=60)
        is_away.clear()
        assert repeated.acquire(timeout=60)
        other = Lease(pipeline.connection, pipeline.log_topic, pipeline.name, 2)
        with pytest.raises(PipelineBusyError), other:
            pass


@pytest.mark.extended
def test_an_idle_lease_is_given_back(pipeline: Pipeline, kept: KeptLease, monkeypatch: pytest.MonkeyPatch) -> None:
    use(kept, pipeline, seconds=600)
    kept.close_idle()
    assert None not in records(pipeline, ClaimRecord.kind)
    monkeypatch.setattr(kept_lease, "IDLE_SECONDS", 0.0)
    kept.close_idle()
    assert records(pipeline, ClaimRecord.kind)[-1] is None


def test_another_lease_of_the_process_ends_the_kept_one(pipeline: Pipeline, kept: KeptLease) -> None:
    before = use(kept, pipeline)
    with pipeline.lease():
        assert records(pipeline, ClaimRecord.kind).count(None) == 1
    assert use(kept, pipeline) != before


@pytest.mark.extended
def test_a_lease_in_use_is_not_given_to_another_one_of_the_process(pipeline: Pipeline, kept: KeptLease) -> None:
    use(kept, pipeline)
    with kept.use(pipeline.lease()), pytest.raises(PipelineBusyError), pipeline.lease():
        pass


@pytest.mark.extended
def test_after_an_error_the_lease_is_given_back(pipeline: Pipeline, kept: KeptLease) -> None:
    with pytest.raises(ZeroDivisionError), kept.use(pipeline.lease()):
        _ = 1 / 0
    assert records(pipeline, ClaimRecord.kind)[-1] is None
    use(kept, pipeline)


@pytest.mark.extended
def test_a_process_that_was_asleep_takes_the_lease_anew(pipeline: Pipeline, kept: KeptLease) -> None:
    with kept.use(pipeline.lease()) as lease:
        before = lease.attempt
        lease._done.set()  # as in a process that is stopped, the claim is not repeated
    time.sleep(3)
    assert use(kept, pipeline) != before
