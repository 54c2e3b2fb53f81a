"""Transactions over a broker that is killed, frozen or unheard: each record once, in order, for committed readers."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from integration.kafka_wire import Wire, record_batch, rows_of

from changefeed.errors import BrokerUnavailableError, FencedError, RetryableError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import TopicSettings, ensure_topics
from changefeed.kafka.transactions import Transactions
from changefeed.model.publish_settings import PublishSettings
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.port import LOCALHOST, free_port
from devstack.process import run_server

pytestmark = pytest.mark.extended

_PARTITIONS = 3
_BATCH = 20
_SETTINGS = PublishSettings(transaction_seconds=5, transaction_timeout_seconds=30)


class Line:
    """A broker, and the only way to it for clients; its own requests to itself go another."""

    def __init__(self, folder: Path) -> None:
        self.wire = Wire()
        self.broker = KafkaBroker(folder, owner=ProcessId.own(), quick=True)

    def lay(self) -> None:
        """Restart the broker with that way: its other ports are known once it has run."""
        self.wire.target = free_port()
        node = json.loads((self.broker.directory / "node.json").read_text())
        own = f"PLAINTEXT://{LOCALHOST}:{node['port']}"
        listeners = f"{own},CLIENTS://{LOCALHOST}:{self.wire.target},CONTROLLER://{LOCALHOST}:{node['controller_port']}"
        self.broker.restart(
            {
                "listeners": listeners,
                "advertised.listeners": f"{own},CLIENTS://{LOCALHOST}:{self.wire.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            }
        )

    def connection(self, silence_seconds: float = 30) -> KafkaConnection:
        options = {"socket.timeout.ms": str(int(silence_seconds * 1000))}
        return KafkaConnection(f"{LOCALHOST}:{self.wire.port}", options, timeout_seconds=min(10.0, silence_seconds))

    def freeze(self, seconds: float) -> None:
        assert self.broker.pid is not None
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.broker.pid, signal.SIGCONT)

    def lose_answers(self, seconds: float) -> None:
        """The proxy accepts the bytes that arrive and forwards none."""
        self.wire.deaf = True
        time.sleep(seconds)
        self.wire.cut()
        self.wire.deaf = False

    def crash(self) -> None:
        self.broker.kill()
        self.wire.cut()
        self.broker.start()


@pytest.fixture(scope="module")
def line(session_folder: Path) -> Iterator[Line]:
    ours = Line(session_folder / "disturbed-kafka")
    with run_server(ours.broker):
        ours.lay()
        yield ours
        ours.wire.close()


@pytest.fixture
def topic(line: Line, unique_name: str) -> str:
    names = dict.fromkeys([unique_name, f"{unique_name}.done"], TopicSettings(_PARTITIONS, 1))
    ensure_topics(line.connection(), names)
    return unique_name


class Task:
    """Publishes transactions of batches to all partitions, each with its number in another topic, and goes on from the
    last number that is committed when it is tried again: what the publisher does, in small."""

    def __init__(self, connection: KafkaConnection, topic: str, transactions: int, batches: int = 5) -> None:
        self.connection, self.topic, self.transactions, self.batches = connection, topic, transactions, batches
        self.errors: list[RetryableError] = []
        self.committed = 0
        self.undisturbed = threading.Lock()
        self.on_stage: Callable[[str], None] = lambda _stage: None

    def _first_row(self, transaction: int) -> int:
        return transaction * self.batches * _BATCH

    @property
    def expected(self) -> dict[int, list[int]]:
        rows = list(range(self._first_row(self.transactions)))
        return dict.fromkeys(range(_PARTITIONS), rows)

    def run(self) -> None:
        """Try until all is committed."""
        deadline = time.monotonic() + 120
        while self.committed < self.transactions:
            assert time.monotonic() < deadline, self.errors
            try:
                self.attempt()
            except RetryableError as error:
                self.errors.append(error)

    def attempt(self) -> None:
        done = f"{self.topic}.done"
        ours = Transactions(self.connection, f"changefeed.{self.topic}.0", _SETTINGS, [self.topic, done])
        try:
            ours.take_over()
            with self.undisturbed:
                self.committed = 1 + max(rows_of(self.connection.bootstrap, done)[0], default=-1)
            while self.committed < self.transactions:
                ours.open()
                first = self._first_row(self.committed)
                for at in range(first, first + self.batches * _BATCH, _BATCH):
                    for partition in range(_PARTITIONS):
                        ours.send_batch(self.topic, partition, *record_batch(range(at, at + _BATCH)))
                ours.send(done, 0, b"done", b"%d" % self.committed, [])
                self.on_stage("under way")
                ours.flush(lambda: None)
                self.on_stage("acknowledged")
                ours.commit(f"transaction {self.committed}")
                self.committed += 1
        finally:
            ours.close()


def _disturbed(task: Task, disturb: Callable[[], None], times: int) -> None:
    """Run ``task`` while something happens again and again."""
    over = threading.Event()

    def again() -> None:
        chance = random.Random(7)
        for _ in range(times):
            if over.wait(chance.uniform(0.05, 0.5)):
                return
            with task.undisturbed:
                disturb()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        task.run()
    finally:
        over.set()
        thread.join()


def test_answers_that_are_lost_repeat_and_lose_nothing(line: Line, topic: str) -> None:
    """The broker has a batch, or a commit, and the producer does not know it and sends it again."""
    task = Task(line.connection(2), topic, transactions=40)
    _disturbed(task, lambda: line.lose_answers(0.1), times=8)
    assert rows_of(line.broker.bootstrap, topic) == task.expected


def test_connections_that_are_cut_repeat_and_lose_nothing(line: Line, topic: str) -> None:
    task = Task(line.connection(2), topic, transactions=40)
    _disturbed(task, line.wire.cut, times=10)
    assert rows_of(line.broker.bootstrap, topic) == task.expected


def test_broker_pause_repeats_and_loses_nothing(line: Line, topic: str) -> None:
    """For longer than the producer waits for a silent broker."""
    task = Task(line.connection(1), topic, transactions=40)
    _disturbed(task, lambda: line.freeze(2), times=1)
    assert rows_of(line.broker.bootstrap, topic) == task.expected


@pytest.mark.parametrize("stage", ["under way", "acknowledged"])
def test_a_broker_killed_in_mid_transaction_repeats_and_loses_nothing(line: Line, topic: str, stage: str) -> None:
    """Not while it ends a transaction: a broker that starts then may forget to, as it has no leaders yet, and says that
    the partitions are \"likely deleted already\". The publisher waits for what that leaves open in the commit log."""
    task = Task(line.connection(5), topic, transactions=6)
    killed = False

    def kill_once(now: str) -> None:
        nonlocal killed
        if now == stage and task.committed == 3 and not killed:
            killed = True
            line.crash()

    task.on_stage = kill_once
    task.run()
    assert killed
    assert rows_of(line.broker.bootstrap, topic) == task.expected


def _send_and_commit(transactions: Transactions, topic: str) -> None:
    transactions.send_batch(topic, 0, *record_batch(range(10, 20)))
    transactions.flush(lambda: None)
    transactions.commit("too late")


def test_transaction_beyond_its_timeout_is_aborted_and_reported(line: Line, topic: str) -> None:
    settings = PublishSettings(transaction_seconds=1, transaction_timeout_seconds=2)
    for late in ("commit", "send"):
        ours = Transactions(line.connection(), f"changefeed.{topic}.0", settings, [topic])
        ours.take_over()
        ours.open()
        ours.send_batch(topic, 0, *record_batch(range(10)))
        ours.flush(lambda: None)
        time.sleep(3.5)
        with pytest.raises(FencedError, match="outlived its timeout"):
            _send_and_commit(ours, topic) if late == "send" else ours.commit("too late")
        ours.close()
    assert rows_of(line.broker.bootstrap, topic)[0] == []


def test_commit_that_begins_while_the_broker_is_down_succeeds_after_its_start(line: Line, topic: str) -> None:
    """kafka-python alone loses a request for which it has no connection, and waits for its answer."""
    ours = Transactions(line.connection(), f"changefeed.{topic}.0", PublishSettings(), [topic])
    ours.take_over()
    ours.open()
    ours.send_batch(topic, 0, *record_batch(range(10)))
    ours.flush(lambda: None)
    line.broker.kill()
    refused_before = line.wire.refused
    line.wire.cut()
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(ours.commit, "what the broker missed")
        while line.wire.refused < refused_before + 5 and not ended.done():
            time.sleep(0.05)
        line.broker.start()
        ended.result()
    ours.close()
    assert rows_of(line.broker.bootstrap, topic)[0] == [*range(10)]


def test_batches_that_are_not_delivered_in_time_are_not_committed_without(line: Line, topic: str) -> None:
    """kafka-python alone would commit what is left."""
    settings = PublishSettings(transaction_seconds=1, transaction_timeout_seconds=3)
    ours = Transactions(line.connection(2), f"changefeed.{topic}.0", settings, [topic])
    ours.take_over()
    ours.open()
    ours.send_batch(topic, 0, *record_batch(range(10)))
    ours.flush(lambda: None)
    line.wire.deaf = True
    delivery = ours.send_batch(topic, 0, *record_batch(range(10, 20)))
    begun = time.monotonic()
    with pytest.raises(BrokerUnavailableError):
        ours.flush(lambda: None)
    line.wire.cut()
    line.wire.deaf = False
    assert delivery.offset is None
    with pytest.raises(RetryableError):
        ours.commit("a part")
    ours.close()
    assert time.monotonic() - begun < 60
    assert rows_of(line.broker.bootstrap, topic)[0] == []
