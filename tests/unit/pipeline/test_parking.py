"""Parked tables: which ones windows leave out, and what a pipeline that parks may not have."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from any_topics import AnyTopics

from changefeed.errors import AccountingError, CompatibilityError, SchemaError, SettingsError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import LogEntry, LogRecord, ParkedRecord, SealRecord, SeekLogRecord
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.seek import SeekRecord
from changefeed.model.window import Window
from changefeed.operations.unpark import check_left_out, pipeline_of
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.parking import check_none_parked, check_same_parked, left_out_tables, parked_tables
from changefeed.settings.message_rules import message_rules
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.messages import Failure
from changefeed.transforms.chain import Chain
from changefeed.transforms.change import Change, Coordinates
from changefeed.transforms.loading import Transform

AT = BinlogCoordinates("b.000001", 4)
WINDOW = Window("shop", 1, "uuid", AT, AT, "", "", 0)
SETTINGS = {"name": "shop", "source": {"connection": "s"}, "kafka": {"connection": "k"}, "on_table_error": "park"}
PIPELINE = Pipeline.model_validate(SETTINGS)
URIS = {"s": "mysql://u:p@127.0.0.1:1", "k": "kafka://127.0.0.1:1"}
ISO = {"decimal": "string", "temporal": "iso", "documents": "text"}
RECORD = ParkedRecord("shop.orders", "uuid", "b.000001:4", "", "it fails", 0)


def state_of(*records: ParkedRecord) -> CommitLogState:
    entries = []
    for record in records:
        key, value = record.key("shop"), record.value()
        entry = LogEntry.of(KafkaRecord("log", 0, 0, key, value, (), 0, stamped_by_broker=True))
        assert entry is not None
        entries.append(entry)
    return CommitLogState(tuple(entries))


def test_parked_tables_are_those_of_the_commit_log_by_name() -> None:
    other = replace(RECORD, table="shop.items")
    assert parked_tables(state_of()) == {}
    assert list(parked_tables(state_of(RECORD, other)).items()) == [("shop.items", other), ("shop.orders", RECORD)]


def test_a_pipeline_that_does_not_park_any_more_refuses_to_go_on_with_parked_tables() -> None:
    stops = PIPELINE.model_copy(update={"on_table_error": "stop"})
    assert left_out_tables(PIPELINE, state_of(RECORD)) == {"shop.orders"}
    assert left_out_tables(stops, state_of()) == frozenset()
    with pytest.raises(SettingsError, match="changefeed unpark shop"):
        left_out_tables(stops, state_of(RECORD))


def test_an_action_refuses_only_the_parked_tables_that_it_reads() -> None:
    check_none_parked("shop", state_of(RECORD), "snapshot", {"shop.items"})
    for tables in (None, {"shop.orders"}):
        with pytest.raises(SettingsError, match=r"snapshot: shop\.orders is parked"):
            check_none_parked("shop", state_of(RECORD), "snapshot", tables)


def test_a_partly_published_window_continues_only_without_the_same_tables() -> None:
    check_same_parked(WINDOW, ["shop.orders"], ["shop.orders"])
    with pytest.raises(AccountingError, match="Nothing more was published"):
        check_same_parked(WINDOW, [], ["shop.orders"])


def test_a_decoding_task_routes_no_rows_of_a_parked_table() -> None:
    task = DecodeTask(
        connections=PipelineConnections(PIPELINE, URIS.__getitem__),
        server_uuid="uuid",
        topics=AnyTopics(),
        identity="shop",
        frozen_at_ms=0,
        start=AT,
        parked=frozenset({"shop.orders"}),
    )
    assert task.route("shop", "orders") is None
    assert task.route("shop", "orders2") is not None
    assert pickle.loads(pickle.dumps(task)).parked == {"shop.orders"}


def test_an_error_keeps_its_tables_on_its_way_from_a_worker() -> None:
    for error in (SchemaError("a").of_tables("shop.orders"), CompatibilityError("b")):
        failure = Failure.of(error)
        assert Failure.from_json(orjson.loads(orjson.dumps(failure))) == failure
        assert (type(failure.error), failure.error.tables) == (type(error), error.tables)
    assert pickle.loads(pickle.dumps(SchemaError("a").of_tables("t"))).tables == ("t",)


def fail_as_lookup(_change: Change) -> Change:
    try:
        raise ConnectionRefusedError("no answer")
    except ConnectionRefusedError as error:
        raise RuntimeError("the lookup failed") from error


def fail_without_memory(_change: Change) -> Change:
    raise MemoryError


def fail_by_value(change: Change) -> Change:
    raise ValueError(change.after)


@pytest.mark.parametrize(
    ("function", "tables"),
    [(fail_as_lookup, ()), (fail_without_memory, ()), (fail_by_value, ("shop.orders",))],
)
def test_an_outage_of_what_a_function_calls_is_not_an_error_of_its_table(
    function: Callable[[Change], Change], tables: tuple[str, ...]
) -> None:
    change = Change(
        "c", "shop", "orders", None, {"id": 1}, ("id",), "t", datetime.now(UTC), None, Coordinates("b.000001", 4, 0)
    )
    _, failures = Chain([Transform("lookup", function, takes_batches=False)], Counter()).of_change(change)
    assert failures[0].error(change).tables == tables


@pytest.mark.parametrize(
    ("number", "start", "parked", "seek", "is_older"),
    [
        (2, 100, (), 1, True),
        (2, 100, ("shop.orders",), 1, False),
        (2, 50, (), 1, False),
        (2, 100, (), 3, False),  # published before the seek, after which the table was parked
    ],
)
def test_changes_that_an_older_version_published_are_not_published_again(
    number: int, start: int, parked: tuple[str, ...], seek: int, is_older: bool
) -> None:
    window = replace(WINDOW, number=number, start=replace(AT, position=start), head=replace(AT, position=200))
    sought = SeekRecord(seek, 0, "ada", "", "", None, "", str(AT), "", 0, 0, "uuid")
    entries = []
    records: tuple[LogRecord, ...] = (
        SealRecord(Manifest(window, 0, 0, 0, {}, 0, (), parked=parked)),
        SeekLogRecord(sought),
    )
    for entry in records:
        log = KafkaRecord("log", 0, 0, entry.key("shop"), entry.value(), (), 0, stamped_by_broker=True)
        entries.append(LogEntry.of(log))
    record = replace(RECORD, at="b.000001:100")
    with pytest.raises(AccountingError, match="older version") if is_older else nullcontext():
        check_left_out("shop", record, CommitLogState(tuple(filter(None, entries))))


def test_parking_does_not_shape_messages() -> None:
    assert message_rules(PIPELINE) == message_rules(PIPELINE.model_copy(update={"on_table_error": "stop"}))


@pytest.mark.parametrize("name", ["orders", "ord*", "or[d]er", "a?b"])
def test_the_return_of_a_table_captures_no_other_table(name: str) -> None:
    narrowed = pipeline_of(PIPELINE, f"shop.{name}")
    assert narrowed.tables.matches("shop", name)
    assert [each for each in ("orders", "ordx", "order", "axb") if narrowed.tables.matches("shop", each)] == (
        ["orders"] if name == "orders" else []
    )
    assert narrowed.publish_ddl == "off"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"followers": [{"connection": "f"}], "values": ISO}, "followers"),
        ({"topics": {"template": "all", "shared": True}}, "share a topic"),
        ({"topics": {"routes": [{"match": "shop.o*", "topic": "orders"}]}}, "share a topic"),
        ({"publish_ddl": "inline"}, "inline"),
        ({"statements": "publish"}, "publish"),
        ({"format": {"name": "debezium", "provide.transaction.metadata": True}}, "transactions"),
    ],
)
def test_settings_that_depend_on_the_order_of_tables_are_refused(settings: dict[str, Any], reason: str) -> None:
    Pipeline.model_validate({**SETTINGS, **settings, "on_table_error": "stop"})
    with pytest.raises(ValueError, match=reason) as caught:
        Pipeline.model_validate({**SETTINGS, **settings})
    assert "on_table_error: park" in str(caught.value)
