"""Which windows of continuous runs get asset events. Airflow's own accessors read and take the events; only its API
server is not here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult, ErrorResponse
from airflow.sdk.execution_time.context import InletEventsAccessors, OutletEventAccessors

from changefeed.airflow import assets, tasks
from changefeed.airflow.assets import asset_events, last_sent_window, pipeline_alias
from changefeed.airflow.pipeline_versions import PipelineVersions
from changefeed.airflow.unsent_events import emit_unsent, read_unsent
from changefeed.errors import CheckpointError, StateStoreUnavailableError
from changefeed.ingest import commit
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import LogEntry, SealRecord
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, TopicPartitionReceipt
from changefeed.model.window import Window
from changefeed.pipeline import windows
from changefeed.settings.file import parse_pipeline

PIPELINE = parse_pipeline(
    "name: shop\nsource: {connection: m}\nkafka: {connection: k}\ntables: {include: [shop.*]}\n", "shop.yaml"
)
HOUR_MS = 3_600_000


def manifest(number: int, *, topic: str = "shop.orders", hours_ago: float = 0.0) -> Manifest:
    """A window with one row of `shop.orders`, in ``topic``."""
    frozen_ms = int(time.time() * 1000 - hours_ago * HOUR_MS) - 1000
    start, head = BinlogCoordinates("bin.000001", number * 100), BinlogCoordinates("bin.000001", number * 100 + 100)
    window = Window("shop", number, "5cd0", start, head, "", "", frozen_ms)
    receipt = TopicPartitionReceipt(topic, 0, 1, 0, 10, 0, number, number)
    return Manifest(window, 100, 1, 1, {"shop.orders": {"c": 1}}, 0, (receipt,))


@dataclass
class Api:
    """The answers of Airflow's API server to a task: stored events, newest last."""

    events: list[dict[str, Any]] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    fails: bool = False

    def add(self, extra: dict[str, Any], run: str = "run") -> None:
        """Store an event."""
        number = len(self.events)
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        asset = {"name": "k/t", "uri": "kafka://k/t", "group": "changefeed"}
        self.events.append(
            {
                "id": number,
                "timestamp": at,
                "extra": extra,
                "asset": asset,
                "created_dagruns": [],
                "source_run_id": run,
            }
        )

    def send(self, request: Any) -> Any:
        """The answer to a question for events."""
        if self.fails:
            return ErrorResponse(error=ErrorType.API_SERVER_ERROR)
        self.limits.append(request.limit)
        found = self.events if request.ascending else self.events[::-1]
        return AssetEventsResult.model_validate({"asset_events": found[: request.limit]})


@dataclass
class Task:
    """A task of pipeline `shop`, its commit log and its checkpoint."""

    api: Api
    context: dict[str, Any]
    sealed: list[Manifest] = field(default_factory=list)
    written_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    checkpoint: int = 10_000
    store_error: Exception | None = None
    connections: Any = field(default_factory=lambda: SimpleNamespace(pipeline=PIPELINE))

    def state(self, *_: Any, **__: Any) -> CommitLogState:
        """The commit log's state."""
        entries = []
        for each in self.sealed:
            seal = SealRecord(each)
            record = KafkaRecord(
                "log", 0, 0, seal.key("shop"), seal.value(), (), self.written_ms(), stamped_by_broker=True
            )
            entries.append(LogEntry.of(record))
        return CommitLogState(tuple(entry for entry in entries if entry))

    def load(self, _: str) -> Checkpoint:
        """The stored checkpoint."""
        if self.store_error:
            raise self.store_error
        return Checkpoint("shop", self.checkpoint, "5cd0", BinlogCoordinates("bin.000001", 4), "", 1)

    def emit(self, kept: list[Manifest] | None = None) -> list[int]:
        """Call `emit_unsent`; returns the windows of the events, which name all of them."""
        store: Any = self
        unsent = [
            each.window.number for each in emit_unsent(PipelineVersions(PIPELINE), self.connections, store, kept or [])
        ]
        assert sorted(number for extra in self.emitted() for number in extra["windows"]) == unsent
        return unsent

    def emitted(self) -> list[dict[str, Any]]:
        """The extras of the emitted events."""
        return [dict(event.extra) for event in self.context["outlet_events"][pipeline_alias("shop")].asset_alias_events]


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    context = {"inlet_events": InletEventsAccessors([pipeline_alias("shop")]), "outlet_events": OutletEventAccessors()}
    task = Task(Api(), context)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", task.api, raising=False)
    monkeypatch.setattr(assets, "get_current_context", lambda: context)
    monkeypatch.setattr(windows, "last_stable_state", task.state)
    return task


def test_windows_after_the_last_event_are_sent_up_to_the_checkpoint(task: Task) -> None:
    task.api.add({"windows": [2], "last_window": 3})
    task.sealed, task.checkpoint = [manifest(number) for number in range(1, 8)], 6
    assert task.emit() == [4, 5, 6]
    assert {extra["last_window"] for extra in task.emitted()} == {6}


def test_task_without_an_inlet_sends_the_windows_that_it_committed(task: Task) -> None:
    """`windows` was removed from the YAML after the run began; Airflow parses it again for each task."""
    task.context["inlet_events"] = InletEventsAccessors([])
    task.sealed = [manifest(number) for number in range(1, 8)]
    assert read_unsent(task.connections) == []
    assert task.emit(task.sealed[5:]) == [6, 7]


def test_read_error_leaves_the_events_to_the_next_run(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    task.sealed = [manifest(1)]
    task.store_error = StateStoreUnavailableError("no answer")
    assert task.emit() == []
    task.store_error = None
    task.api.fails = True
    with pytest.raises(AirflowRuntimeError):
        last_sent_window("shop")
    assert task.emit() == []
    assert read_unsent(task.connections) == []
    task.api.fails = False

    def refuse(_: Any) -> CommitLogState:
        raise CheckpointError("signed with another key")

    monkeypatch.setattr(windows, "last_stable_state", refuse)
    assert task.emit() == []
    assert read_unsent(task.connections) == []
    monkeypatch.setattr(windows, "last_stable_state", task.state)
    assert task.emit() == [1]


def test_committed_windows_are_reported_before_their_events(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(tasks, "task_connections", lambda _: task.connections)
    monkeypatch.setattr(tasks, "checkpoint_store_of", lambda _: task)
    monkeypatch.setattr(commit, "commit_sealed", lambda *_: [manifest(1)])
    monkeypatch.setattr(tasks, "report_committed", lambda *_: order.append("reported"))
    monkeypatch.setattr(tasks, "emit_unsent", lambda *_: order.append("events"))
    tasks.commit_rest(PIPELINE)
    assert order == ["reported", "events"]


def test_events_of_an_earlier_version_count_up_to_the_last_window_of_their_run(task: Task) -> None:
    task.api.add({"windows": [1, 2, 9]}, run="before")
    task.api.add({"windows": [3, 8]}, run="last")
    task.api.add({"windows": [4]}, run="last")
    task.api.add({"windows": []}, run="unpark")
    assert last_sent_window("shop") == 8
    assert task.api.limits == [1, 100]


def test_the_newest_event_is_enough_if_it_names_a_window(task: Task) -> None:
    assert last_sent_window("shop") == 0
    for number in range(1, 4):
        task.api.add({"windows": [number], "last_window": number})
    task.api.limits.clear()
    assert last_sent_window("shop") == 3
    assert task.api.limits == [1]


def test_without_a_known_event_windows_of_the_last_day_are_sent(task: Task) -> None:
    """As after a rename, which writes all seals again."""
    task.sealed = [manifest(1, hours_ago=30), manifest(2, hours_ago=23), manifest(3)]
    assert task.emit() == [2, 3]


def test_without_a_known_event_seals_that_were_written_earlier_are_not_parsed(task: Task) -> None:
    task.sealed, task.written_ms = [manifest(1), manifest(2)], lambda: int(time.time() * 1000) - 25 * HOUR_MS
    assert task.emit([manifest(3)]) == [3]


def test_windows_of_a_failed_run_are_sent_although_the_log_has_merged_them(task: Task) -> None:
    task.api.add({"windows": [1], "last_window": 1})
    task.sealed = [manifest(1), manifest(2), manifest(3)]
    earlier = read_unsent(task.connections)
    task.sealed = [manifest(5)]
    task.api.add({"windows": [2], "last_window": 2})
    assert task.emit([*earlier, manifest(4)]) == [3, 4, 5]


def test_a_restored_checkpoint_sends_no_event_again(task: Task) -> None:
    task.api.add({"windows": [5], "last_window": 5})
    task.sealed, task.checkpoint = [manifest(number) for number in range(1, 7)], 3
    assert task.emit() == []
    task.checkpoint = 6
    assert task.emit() == [6]


def test_a_pipeline_that_has_begun_anew_sends_its_windows(task: Task) -> None:
    task.api.add({"windows": [500], "last_window": 500})
    task.sealed = [manifest(1), manifest(2)]
    assert task.emit() == [1, 2]


def test_only_unsent_seals_are_parsed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    task.api.add({"windows": [2], "last_window": 2})
    task.sealed = [manifest(1), manifest(2), manifest(3)]
    parsed: list[int] = []
    read = SealRecord.from_json

    def count(parts: Any, value: Any) -> SealRecord:
        parsed.append(parts[0])
        return read(parts, value)

    monkeypatch.setattr(SealRecord, "from_json", count)
    assert task.emit() == [3]
    assert parsed == [3]


def test_topic_without_the_rows_of_the_window_has_no_event() -> None:
    found = asset_events(PIPELINE, [manifest(1, topic="old.orders"), manifest(2)])
    assert {topic: event["windows"] for topic, event in found.items()} == {"shop.orders": [2]}
