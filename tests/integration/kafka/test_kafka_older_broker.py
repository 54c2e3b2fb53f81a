"""Brokers before Kafka 3.0, which do not list transactional ids: the commit log says how many there are to fence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kafka.errors
import pytest
from faults.proxy import OlderBroker
from integration.kafka_wire import record_batch, rows_of

from changefeed.errors import FencedError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence, transactional_id
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics
from changefeed.kafka.transactions import Transactions
from changefeed.model.publish_settings import PublishSettings
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.process import run_server

pytestmark = pytest.mark.extended

LIST_TRANSACTIONS = 66
_SETTINGS = PublishSettings(transaction_seconds=5, transaction_timeout_seconds=15)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[KafkaConnection]:
    proxy = OlderBroker(0, LIST_TRANSACTIONS)
    properties = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    with run_server(
        KafkaBroker(tmp_path / "kafka", properties=properties, owner=ProcessId.own(), quick=True)
    ) as broker:
        proxy.lead_to(broker.port)
        yield KafkaConnection(f"127.0.0.1:{proxy.port}")
        proxy.close()


def publish(task: Transactions) -> None:
    task.open()
    task.send_batch("rows", 0, *record_batch(range(10)))
    task.commit("ten rows")


def test_who_publishes_nothing_fences_all_tasks_of_earlier_attempts(connection: KafkaConnection) -> None:
    with connection.admin() as admin, pytest.raises(kafka.errors.UnsupportedVersionError):
        admin.list_transactions()
    ensure_topics(connection, {"rows": TopicSettings(1, 1), "log": commit_log_settings(1)})
    with Lease(connection, "log", "shop", 5) as lease:
        fence(lease, 4)
    tasks = [Transactions(connection, transactional_id("shop", task), _SETTINGS, ["rows"]) for task in range(4)]
    for task in tasks:
        task.take_over()
    for _ in range(2):  # a prune, and another one
        with Lease(connection, "log", "shop", 5) as lease:
            fence(lease)
    assert lease.earlier_tasks == 4
    for task in tasks:
        with pytest.raises(FencedError):
            publish(task)
        task.close()
    assert rows_of(connection.bootstrap, "rows") == {0: []}
