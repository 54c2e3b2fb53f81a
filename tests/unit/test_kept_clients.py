"""Clients that stay open: which is used again, and when one is closed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest

from changefeed import kept_clients
from changefeed.kafka.connection import KafkaConnection
from changefeed.kept_clients import kept_client

CLUSTER, OTHER = KafkaConnection("one:9092"), KafkaConnection("two:9092")


@dataclass
class Client:
    well: bool = True
    closed: bool = False

    def is_well(self) -> bool:
        return self.well

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_clients, "_is_on", True)
    monkeypatch.setattr(kept_clients, "_idle", [])


def use(connection: KafkaConnection = CLUSTER, purpose: str = "admin", error: type[Exception] | None = None) -> Client:
    """Use a client, with an error in its use or none."""
    used = []
    with suppress(ValueError), kept_client(connection, purpose, Client) as client:
        used.append(client)
        if error is not None:
            raise error
    return used[0]


def test_a_client_is_used_again_for_the_same_connection_and_purpose() -> None:
    first = use()
    assert use() is first
    assert use(purpose="a log") is not first
    assert use(OTHER) is not first
    assert use(KafkaConnection("one:9092")) is first
    assert not first.closed


def test_two_users_at_a_time_have_a_client_each() -> None:
    with kept_client(CLUSTER, "admin", Client) as one, kept_client(CLUSTER, "admin", Client) as two:
        assert one is not two


def test_an_error_closes_all_clients_of_its_connection() -> None:
    admin, other, failed = use(), use(OTHER), use(purpose="a log", error=ValueError)
    assert (admin.closed, failed.closed, other.closed) == (True, True, False)
    assert use() is not admin


def test_a_client_that_lost_a_connection_is_not_used_again() -> None:
    first = use()
    first.well = False
    assert use() is not first
    assert first.closed


def test_a_client_is_used_for_some_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    first, now = use(), kept_clients.boot_seconds()
    monkeypatch.setattr(kept_clients, "boot_seconds", lambda: now + kept_clients.KEPT_SECONDS + 1)
    assert use() is not first
    assert first.closed


def test_without_keeping_a_client_is_closed_after_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_clients, "_is_on", False)
    assert use().closed


def test_not_more_than_some_clients_stay_open() -> None:
    clients = [use(purpose=str(number)) for number in range(kept_clients._MOST_IDLE + 2)]
    assert [client.closed for client in clients[:3]] == [True, True, False]


def test_at_the_end_of_the_process_all_are_closed_and_none_is_kept() -> None:
    first = use()
    kept_clients._close_all()
    assert first.closed
    assert use().closed
