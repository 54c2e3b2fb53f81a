"""Cached reads, and the last known values while a server does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from changefeed.errors import BinlogGoneError, BrokerUnavailableError, SourceUnavailableError
from changefeed.settings.file import parse_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed_web import position, readings
from changefeed_web.readings import Staleness

YAML = "name: shop\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\n"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline whose every read is a new one."""
    monkeypatch.setattr(readings, "CACHE_SECONDS", 0.0)
    yield parse_pipeline(YAML, "shop.yaml")
    readings.forget("shop")


def refuse(error: Exception) -> Callable[[], Any]:
    def read() -> Any:
        raise error

    return read


def test_last_known_value_is_used_while_a_server_does_not_answer(shop: Pipeline) -> None:
    before = int(time.time() * 1000)
    assert readings.read_cached("tables", shop, lambda: ["shop.orders"]) == ["shop.orders"]
    down = refuse(BrokerUnavailableError("kafka:9092 does not answer"))
    for _ in range(2):
        stale = Staleness()
        assert readings.read_cached("tables", shop, down, stale) == ["shop.orders"]
        assert stale.errors == {"BrokerUnavailableError": "kafka:9092 does not answer"}
        assert before <= (stale.read_at_ms or 0) <= time.time() * 1000
        readings.expire("shop")
    stale = Staleness()
    assert readings.read_cached("tables", shop, list, stale) == []
    assert stale.to_json() is None


def test_last_known_value_is_not_used_unasked_nor_for_other_errors_or_settings(shop: Pipeline) -> None:
    readings.read_cached("tables", shop, lambda: ["shop.orders"])
    down, gone = refuse(SourceUnavailableError("down")), refuse(BinlogGoneError("purged"))
    with pytest.raises(SourceUnavailableError):
        readings.read_cached("tables", shop, down)  # as the metrics do
    with pytest.raises(BinlogGoneError):
        readings.read_cached("tables", shop, gone, Staleness())
    stale, changed = Staleness(), parse_pipeline(f"{YAML}columns: {{exclude: [shop.orders.note]}}\n", "shop.yaml")
    with pytest.raises(SourceUnavailableError):
        readings.read_cached("tables", changed, down, stale)
    assert stale.to_json() == {"errors": {"SourceUnavailableError": "down"}, "read_at_ms": None}


def test_read_that_takes_long_holds_no_request(shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "SLOW_SECONDS", 0.05)
    readings.read_cached("tables", shop, lambda: "old")
    answer, reads = threading.Event(), []

    def read() -> str:
        reads.append("one")
        answer.wait(20)
        return "new"

    for _ in range(3):
        stale = Staleness()
        assert readings.read_cached("tables", shop, read, stale) == "old"
        assert "mysql_shop or kafka_shop" in stale.errors["RetryableError"]
    assert reads == ["one"], "requests share one read"
    answer.set()
    monkeypatch.setattr(readings, "SLOW_SECONDS", 20)
    stale = Staleness()
    assert readings.read_cached("tables", shop, read, stale) == "new"
    assert stale.to_json() is None


def test_position_in_error_has_the_last_known_position(shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    current = {"state": "behind", "error": None, "lag_bytes": 7, "unavailable": None}
    down = {"state": "error", "error": "SourceUnavailableError: db1 is down", "unavailable": "SourceUnavailableError"}
    gone = {"state": "error", "error": "BinlogGoneError: purged", "unavailable": None}
    answers = [current, down, down, gone]
    monkeypatch.setattr(position, "_position", lambda _: answers.pop(0))
    assert position.position(shop, Staleness()) == current
    stale = Staleness()
    assert position.position(shop, stale) == {**down, "last_known": current}
    assert stale.errors == {"SourceUnavailableError": "db1 is down"}
    assert position.position(shop) == down, "metrics have no old values"
    assert position.position(shop, Staleness()) == gone


def test_value_that_cannot_have_changed_is_not_read_again_until_it_expires(shop: Pipeline) -> None:
    reads: list[str] = []

    def read(checkpoint: str) -> Any:
        return readings.read_cached(
            "windows", shop, lambda: reads.append(checkpoint) or checkpoint, is_current=lambda kept: kept == checkpoint
        )

    assert [read(checkpoint) for checkpoint in ("a:1", "a:1", "a:2", "a:2")] == ["a:1", "a:1", "a:2", "a:2"]
    assert reads == ["a:1", "a:2"]
    readings.expire("shop")
    assert read("a:2") == "a:2"
    assert reads == ["a:1", "a:2", "a:2"]
    with pytest.raises(SourceUnavailableError):
        readings.read_cached("windows", shop, refuse(SourceUnavailableError("down")))
