"""Sealed windows and DDL statements, as the API server reads and caches them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.ddl.names import TableName
from changefeed.ddl.timeline import RELEARNED, HistoryEntry
from changefeed.kafka.commit_log.log import EMPTY_STATE, CommitLogState
from changefeed.kafka.commit_log.records import LogEntry, SealRecord
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline import schema_history
from changefeed.settings.file import parse_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed_web import position, readings
from changefeed_web.breaker import GuardedConnections

YAML = "name: shop\nsource: {connection: mysql}\nkafka: {connection: kafka}\ntables: {include: ['shop.*']}\n"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline whose values are never fresh."""
    monkeypatch.setattr(readings, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(GuardedConnections, "of", lambda pipeline: pipeline)
    yield parse_pipeline(YAML, "shop.yaml")
    readings.forget("shop")


def at(place: int) -> BinlogCoordinates:
    return BinlogCoordinates("binlog.000001", place)


def log_of(*numbers: int) -> CommitLogState:
    """A commit log with windows of these numbers, each sealed a second after its freeze."""
    entries = []
    for number in numbers:
        window = Window("shop", number, "uuid", at(number * 100), at(number * 100 + 100), "", "", number * 10_000)
        seal = SealRecord(Manifest(window, 100, 4, 1, {"shop.orders": {"c": number}}, 0, (), {"ingest": 1.0}))
        written = number * 10_000 + 1000
        record = KafkaRecord("log", 0, number, seal.key("shop"), seal.value(), (), written, stamped_by_broker=False)
        entry = LogEntry.of(record)
        assert entry is not None
        entries.append(entry)
    return CommitLogState(tuple(entries))


def test_windows_are_read_again_only_when_the_checkpoint_has_moved(
    shop: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [EMPTY_STATE, log_of(1, 2)]
    monkeypatch.setattr(position, "commit_log", lambda _: logs.pop(0))
    assert position.sealed_windows(shop, None) == []
    for _ in range(2):
        windows = position.sealed_windows(shop, "binlog.000001:300")
        assert [(one.number, one.rows, one.sealed_at_ms) for one in windows] == [(2, 2, 21_000), (1, 1, 11_000)]
        assert (windows[0].start, windows[0].head, windows[0].frozen_at_ms) == (at(200), at(300), 20_000)
    assert logs == []


def test_windows_from_a_log_before_the_checkpoint_moved_are_read_again(
    shop: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [log_of(1), log_of(1, 2)]
    monkeypatch.setattr(position, "commit_log", lambda _: logs.pop(0))
    read = [[one.number for one in position.sealed_windows(shop, "binlog.000001:300")] for _ in range(3)]
    assert read == [[1], [2, 1], [2, 1]]


def test_ddl_of_other_tables_and_the_text_of_statements_are_left_out(
    shop: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, other = TableName("shop", "orders"), TableName("other", "t")
    entries = [
        HistoryEntry(at(4), "definition", "shop", "alter table orders add secret int default 7", (orders, other)),
        HistoryEntry(at(5), "definition", "other", "DROP TABLE t", (other,)),
        HistoryEntry(at(6), RELEARNED, "shop", "", (orders,)),
    ]
    history: Any = SimpleNamespace(timeline=SimpleNamespace(entries=entries))
    monkeypatch.setattr(schema_history, "load_history", lambda _: history)
    found = position.ddl_statements(shop, 3)
    assert [(one.verb, one.tables) for one in found] == [
        ("ALTER", ("shop.orders",)),
        ("table definition read again:", ("shop.orders",)),
    ]
    monkeypatch.setattr(schema_history, "load_history", lambda _: None)
    assert position.ddl_statements(shop, 3) == found
    assert position.ddl_statements(shop, 4) == []
