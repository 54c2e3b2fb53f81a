"""The creation of topics while a cluster is busy, elects a controller, or has metadata that differ by broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from changefeed import kept_clients
from changefeed.errors import BrokerUnavailableError, TopicError
from changefeed.kafka import connection as connections
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import TopicSettings, ensure_topics, missing_topics, partition_counts

_CONNECTION = KafkaConnection("127.0.0.1:9092", timeout_seconds=1)
_TOPICS = {"shop.orders": TopicSettings(3, 1)}


class _Cluster:
    """kafka-python's admin client of a cluster."""

    def __init__(self) -> None:
        self.create_error: int | RuntimeError = 0
        self.unknown_answers = 0
        """The number of answers, after the creation, of brokers that do not know the topic yet."""
        self.topic_error = 0
        self._exists = False

    def create_topics(self, topics: dict[str, Any], *, validate_only: bool, **_: Any) -> dict[str, Any]:
        if isinstance(self.create_error, RuntimeError):
            raise self.create_error
        self._exists = not (self.create_error or validate_only)
        return {"topics": [{"name": name, "error_code": self.create_error, "error_message": None} for name in topics]}

    def wait_for_topics(self, _names: list[str], **_: Any) -> None:
        """The broker that is asked here knows the topic."""

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        if not self._exists or self.unknown_answers:
            self.unknown_answers -= self._exists
            return [{"name": name, "error_code": self.topic_error or 3, "partitions": []} for name in names]
        return [{"name": name, "error_code": 0, "partitions": [{}, {}, {}]} for name in names]

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    cluster = _Cluster()
    monkeypatch.setattr(kept_clients, "_is_on", False)  # another test of this process may keep its clients
    monkeypatch.setattr(connections, "KafkaAdminClient", lambda **_: cluster)
    return cluster


_CALLS: list[Callable[[KafkaConnection, dict[str, TopicSettings]], object]] = [ensure_topics, missing_topics]


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize(("code", "name"), [(7, "RequestTimedOut"), (41, "NotController"), (89, "ThrottlingQuota")])
def test_busy_cluster_that_creates_no_topic_now_may_be_retried(
    cluster: _Cluster, call: Callable[..., object], code: int, name: str
) -> None:
    cluster.create_error = code
    with pytest.raises(BrokerUnavailableError, match=rf"'shop\.orders' .*{name}.*Run again"):
        call(_CONNECTION, _TOPICS)


@pytest.mark.parametrize("code", [17, 29, 38, 44])
def test_topic_that_the_broker_refuses_stays_terminal(cluster: _Cluster, code: int) -> None:
    cluster.create_error = code
    with pytest.raises(TopicError, match=f"error code {code}"):
        ensure_topics(_CONNECTION, _TOPICS)


def test_cluster_without_a_controller_may_be_retried(cluster: _Cluster) -> None:
    cluster.create_error = RuntimeError("Failed to find active controller id!")
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9092.*active controller"):
        ensure_topics(_CONNECTION, _TOPICS)


def test_other_runtime_error_is_not_an_error_of_kafka(cluster: _Cluster) -> None:
    cluster.create_error = RuntimeError("a fault of the caller")
    with pytest.raises(RuntimeError, match="of the caller"):
        ensure_topics(_CONNECTION, _TOPICS)


def test_new_topic_is_asked_for_until_the_broker_knows_it(cluster: _Cluster) -> None:
    cluster.unknown_answers = 2
    assert ensure_topics(_CONNECTION, _TOPICS) == {"shop.orders": 3}
    assert cluster.unknown_answers == 0


def test_topic_without_a_leader_may_be_retried(cluster: _Cluster) -> None:
    cluster.topic_error = 5
    with pytest.raises(BrokerUnavailableError, match=r"'shop\.orders' .*LeaderNotAvailable.*Run again"):
        partition_counts(_CONNECTION, _TOPICS)


def test_new_topic_that_no_broker_knows_is_an_error(cluster: _Cluster) -> None:
    cluster.unknown_answers = 1000
    with pytest.raises(BrokerUnavailableError, match=r"'shop\.orders'.* after 1 seconds.*Run again"):
        ensure_topics(_CONNECTION, _TOPICS)
