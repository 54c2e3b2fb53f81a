"""Records of a pipeline's topics: which topics it has, which records match, and what is shown of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.errors import SettingsError
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, TopicPartitionReceipt
from changefeed.model.topic_name import heartbeat_topic, schema_changes_topic
from changefeed.model.window import Window
from changefeed.operations import records
from changefeed.operations.pipeline_topics import PipelineTopic, pipeline_topics
from changefeed.operations.record_filter import RecordFilter
from changefeed.operations.records import RecordWindows, _Owner, find_topic, read_records
from changefeed.operations.shown_records import RecordView, ShownRecord
from changefeed.records.partition import partition_of
from changefeed.settings.file import parse_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

YAML = """
name: shop
source: {connection: mysql_shop}
kafka: {connection: kafka_shop}
tables: {include: ["shop.*"]}
topics: {template: "{database}.{table}", partitions: 3}
"""
SERVER = "5cd004ee-0000-0000-0000-000000000001"


def shop(more: str = "") -> Pipeline:
    return parse_pipeline(YAML + more, "shop.yaml")


def manifest(number: int, start: int, head: int, *receipts: tuple[str, int, int, int], rows: Any = None) -> Manifest:
    file = "binlog.000001"
    ends = BinlogCoordinates(file, start), BinlogCoordinates(file, head)
    window = Window("shop", number, SERVER, *ends, "", "", 1000 * number)
    topics = tuple(TopicPartitionReceipt(topic, part, 1, 0, 1, 0, low, high) for topic, part, low, high in receipts)
    return Manifest(window, 1, 1, 1, rows or {}, 0, topics)


def state(*manifests: Manifest, progress: tuple[TopicPartition, ...] = ()) -> Any:
    return SimpleNamespace(
        seals={each.window.number: each for each in manifests},
        progress=dict.fromkeys(progress),
        of=lambda _: (),
        entries=(),
        entries_of=lambda _: (),
        seeks={},
    )


def record(
    value: Any = None, key: Any = None, topic: str = "shop.orders", offset: int = 0, at: int = 4, **headers: str
) -> KafkaRecord:
    named = {"changefeed.id": f"{SERVER}/binlog.000001:{at}/0"}
    named |= {name.replace("_", ".", 1): text for name, text in headers.items()}
    data = [None if each is None else json.dumps(each, separators=(",", ":")).encode() for each in (key, value)]
    return KafkaRecord(
        topic, 0, offset, data[0], data[1], tuple((name, text.encode()) for name, text in named.items()), 1000, False
    )


def view(pipeline: Pipeline, *topics: PipelineTopic) -> RecordView:
    shown = topics or (PipelineTopic("shop.orders", "table", ("shop.orders",)),)
    return RecordView(pipeline, {each.topic: each for each in shown}, compile_routes(pipeline).format(0))


def test_topics_are_of_settings_windows_and_dropped_tables_but_no_state() -> None:
    pipeline = shop("heartbeat: true\n")
    receipts = ("outbox.Order", 0, 0, 1), ("changefeed.other.commits", 0, 0, 1)
    sealed = manifest(1, 4, 900, *receipts, rows={"shop.gone": {"c": 1}, "hr.x": {}})
    topics = pipeline_topics(pipeline, {"shop.orders": "shop.orders"}, state(sealed, progress=(("shop.orders", 0),)))
    assert {name: (one.kind, one.tables) for name, one in topics.items()} == {
        "shop.orders": ("table", ("shop.orders",)),
        "shop.gone": ("table", ("shop.gone",)),
        "outbox.Order": ("published", ()),
        schema_changes_topic("shop"): ("schema changes", ()),
        heartbeat_topic("shop"): ("heartbeat", ()),
    }
    assert find_topic(topics, None, "shop.gone") == topics["shop.gone"]
    assert find_topic(topics, None, None) is None
    with pytest.raises(SettingsError, match=r"expected a topic of the pipeline, found 'hr.salaries'. It publishes to"):
        find_topic(topics, "hr.salaries", None)
    with pytest.raises(SettingsError, match=r"expected a table of the pipeline, found 'hr.x'"):
        find_topic(topics, None, "hr.x")


@pytest.mark.parametrize(
    ("wanted", "key", "matches"),
    [
        ('{"id": 7}', {"id": 7}, True),
        ("7", {"id": 7}, True),
        ("7", {"id": "7"}, True),
        ("7", {"database": "shop", "table": "orders", "pk.id": 7}, True),
        ("7", {"id": 7, "at": 1}, False),
        ('{"id": 7}', {"id": 8}, False),
        ("true", {"id": 1}, False),
        ("A-1", "A-1", True),
        ("7", None, False),
        ("", None, True),
    ],
)
def test_key_is_found_as_json_or_as_the_value_of_its_column(wanted: str, key: Any, matches: bool) -> None:
    assert RecordFilter(wanted).matches_key(key) is matches


def test_records_are_found_by_id_coordinates_and_time() -> None:
    one = record(at=2092, changefeed_commit="binlog.000001:3000")
    for filter_ in (
        RecordFilter.of(None, f"{SERVER}/binlog.000001:2092/0", None, None, None),
        RecordFilter.of(None, None, "binlog.000001:2092", None, None),
        RecordFilter.of(None, None, "binlog.000001:3000", None, None),
        RecordFilter.of(None, None, None, "1970-01-01T00:00:01Z", "1970-01-01 00:00:02"),
        RecordFilter.of("", " ", "", "", None),
    ):
        assert filter_.matches(one)
    for filter_ in (
        RecordFilter.of(None, f"{SERVER}/binlog.000001:2092/1", None, None, None),
        RecordFilter.of(None, None, "binlog.000001:2093", None, None),
        RecordFilter.of(None, None, None, "1970-01-01T00:00:02Z", None),
        RecordFilter.of(None, None, None, None, "1970-01-01T00:00:01Z"),
    ):
        assert not filter_.matches(one)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("id", "7", "expected SERVER_UUID/FILE:POSITION/ROW"),
        ("coordinates", "binlog:x", "expected FILE:POSITION"),
        ("since", "yesterday", "expected ISO 8601"),
    ],
)
def test_invalid_condition_is_refused(name: str, text: str, words: str) -> None:
    values = dict.fromkeys(("key", "id", "coordinates", "since", "until")) | {name: text}
    with pytest.raises(SettingsError, match=words):
        RecordFilter.of(**values)


def envelope(before: Any, after: Any, op: str = "u") -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"db": "shop", "table": "orders"}}


def test_images_are_shown_with_their_changed_columns() -> None:
    value = envelope({"id": 7, "big": 18446744073709551615, "note": None}, {"id": 7, "big": 1, "note": "é"})
    shown = view(shop()).show(record(value, {"id": 7}, at=2092), window=3).to_json()
    assert (shown["key"], shown["coordinates"], shown["window"]) == ('{"id":7}', "binlog.000001:2092", 3)
    (change,) = shown["changes"]
    assert (change["op"], change["table"], change["changed"]) == ("u", "shop.orders", ["big", "note"])
    assert change["before"] == {"id": "7", "big": "18446744073709551615", "note": "null"}
    assert change["after"] == {"id": "7", "big": "1", "note": '"é"'}
    assert json.loads(shown["value"]) == value


def test_hidden_columns_are_in_no_part_of_a_record() -> None:
    pipeline = shop('columns: {exclude: ["shop.*.card"], mask: {"shop.*.email": {text: x}}}\n')
    row = {"id": 7, "email": "SECRET1", "card": "SECRET2"}
    value = envelope(row, {**row, "EMAIL": "SECRET3"})
    shown = view(pipeline).show(record(value, {"id": 7, "email": "SECRET4"}, changefeed_definition="SECRET5"))
    text = json.dumps(shown.to_json())
    assert "SECRET" not in text
    assert shown.changes[0].hidden == ("email", "card", "EMAIL")
    assert shown.changes[0].before == {"id": "7"}
    assert shown.key == "(hidden)"
    assert "the pipeline hides columns" in shown.value_note
    assert view(pipeline).show(record(None, {"id": 7})).key == '{"id":7}'


def test_rows_of_unknown_tables_are_not_shown_if_the_pipeline_hides_columns() -> None:
    pipeline = shop('columns: {exclude: ["shop.*.card"]}\n')
    other = PipelineTopic("changefeed.shop.dead-letter", "dead letters")
    value = {"before": None, "after": {"any": "SECRET"}, "op": "c", "source": {}}
    shown = view(pipeline, other).show(
        record(value, {"k": "SECRET"}, other.topic, changefeed_reason="too large", changefeed_topic="unknown")
    )
    assert "SECRET" not in json.dumps(shown.to_json())
    assert (shown.to_json()["reason"], shown.to_json()["meant_for"]) == ("too large", "unknown")


def test_other_records_have_a_value_without_images() -> None:
    for value in ({"a": 1}, [1], "text"):
        shown = view(shop()).show(record(value))
        assert (shown.changes, json.loads(shown.value or "")) == ((), value)
    tombstone = view(shop()).show(record(None, {"id": 7}))
    assert (tombstone.value, tombstone.changes, tombstone.to_json()["value_bytes"]) == (None, (), None)
    large = view(shop()).show(record("x" * 70_000))
    assert large.value is None
    assert "70,002 bytes" in large.value_note


class Reader:
    """A reader of three partitions, and the partitions that were read."""

    def __init__(self, *stored: KafkaRecord) -> None:
        self._stored = stored
        self.read: set[int] = set()

    def first_offsets(self) -> dict[TopicPartition, int]:
        return {("shop.orders", number): 0 for number in range(3)}

    def last_stable_offsets(self) -> dict[TopicPartition, int]:
        return {("shop.orders", number): 50 for number in range(3)}

    def between(self, ranges: Mapping[TopicPartition, tuple[int, int]], **_: float) -> Iterator[KafkaRecord]:
        self.read |= {number for _, number in ranges}
        for each in self._stored:
            low, end = ranges.get((each.topic, each.partition), (0, 0))
            if low <= each.offset < end:
                yield each


def read(
    monkeypatch: pytest.MonkeyPatch,
    reader: Reader,
    wanted: RecordFilter,
    *manifests: Manifest,
    kind: Any = "table",
    limit: int = 20,
) -> tuple[ShownRecord, ...]:
    @contextmanager
    def opened(*_: Any) -> Iterator[Reader]:
        yield reader

    monkeypatch.setattr(records, "partition_reader", opened)
    monkeypatch.setattr(records, "partition_counts", lambda *_: {"shop.orders": 3})
    pipeline = shop()
    kafka = SimpleNamespace(timeout_seconds=1.0)
    connections: Any = SimpleNamespace(kafka=kafka, registry=None, pipeline=pipeline, routes=compile_routes(pipeline))
    topic = PipelineTopic("shop.orders", kind, ("shop.orders",) if kind == "table" else ())
    return read_records(connections, {topic.topic: topic}, topic, state(*manifests), wanted, limit=limit).records


def keyed(number: int, offset: int, partition: int | None = None) -> KafkaRecord:
    key = b'{"id":%d}' % number
    part = partition_of(key, b"", 3) if partition is None else partition
    event = f"{SERVER}/binlog.000001:{offset}/0".encode()
    return KafkaRecord("shop.orders", part, offset, key, b"{}", (("changefeed.id", event),), offset, False)


def test_only_the_partition_of_a_key_is_read_if_keys_choose_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, own = RecordFilter('{"id": 7}'), partition_of(b'{"id":7}', b"", 3)
    sealed = manifest(1, 0, 100, *(("shop.orders", part, 0, 49) for part in range(3)))
    reader = Reader(*(keyed(number, number) for number in range(20)))
    assert [one.key for one in read(monkeypatch, reader, wanted, sealed)] == ['{"id":7}']
    assert reader.read == {own}
    other = next(number for number in range(9) if keyed(number, 0).partition != own)
    moved = Reader(keyed(7, 7, partition=(own + 1) % 3), keyed(other, 8, partition=own), keyed(7, 9))
    assert len(read(monkeypatch, moved, wanted, sealed)) == 2, "the topic has another partitioner"
    assert moved.read == {0, 1, 2}
    reader = Reader(*(keyed(number, number) for number in range(20)))
    assert [one.key for one in read(monkeypatch, reader, RecordFilter("7"), sealed)] == ['{"id":7}']


def test_records_name_the_window_that_published_them(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = keyed(1, 20), keyed(1, 40)
    part = one.partition
    sealed = manifest(4, 10, 30, ("shop.orders", part, 15, 25)), manifest(5, 30, 39, ("shop.orders", part, 35, 45))
    reader = Reader(one, two)
    assert [each.window for each in read(monkeypatch, reader, RecordFilter(), *sealed)] == [4], "40 is not in 5"
    found = read(monkeypatch, reader, RecordFilter(coordinates="binlog.000001:20"), *sealed)
    assert [each.record.offset for each in found] == [20]


def test_topic_that_no_setting_names_shows_only_records_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    one, foreign = keyed(1, 20), keyed(1, 21)
    sealed = manifest(4, 10, 21, ("shop.orders", one.partition, 15, 25))
    nameless = KafkaRecord("shop.orders", one.partition, 22, b"k", b"SECRET", (), 9, False)
    found = read(monkeypatch, Reader(one, foreign, nameless), RecordFilter(), sealed, kind="published")
    assert [each.record.offset for each in found] == [20]


@pytest.mark.parametrize("limit", [1, 20])
def test_tombstones_of_others_take_no_place_of_the_pipelines_records(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The record before a tombstone is read on its own if a round of the search ends between the two."""

    def at(offset: int, value: Any, event: str) -> KafkaRecord:
        headers = (("changefeed.id", f"{SERVER}/binlog.000001:{event}".encode()),)
        return KafkaRecord("shop.orders", 0, offset, b"k", value and json.dumps(value).encode(), headers, offset, False)

    foreign = {**envelope({"id": 7}, None), "op": "d", "source": {"db": "payroll", "table": "salaries"}}
    reader = Reader(at(20, {"a": 1}, "20/0"), at(21, foreign, "21/0"), at(22, None, "21/0/1"))
    sealed = manifest(4, 10, 30, ("shop.orders", 0, 15, 25))
    found = read(monkeypatch, reader, RecordFilter(), sealed, limit=limit)
    assert [each.record.offset for each in found] == [20]


def test_records_of_others_in_a_topic_that_settings_name_are_not_the_pipelines() -> None:
    pipeline, windows = shop(), RecordWindows.of([manifest(1, 4, 900, ("shop.orders", 0, 5, 9))])
    owner = _Owner(pipeline, frozenset({SERVER}), windows)
    assert owner.has_published(record(offset=5, at=4), ())
    assert not owner.has_published(record(offset=4, at=4), ()), "before the window's offsets"
    assert not owner.has_published(record(offset=5, at=900), ()), "of another window's coordinates"
    assert owner.has_published(_read(f"{SERVER}/shop.orders#3:7/0"), ())
    assert not owner.has_published(_read(f"{SERVER}/payroll.salaries#3:7/0"), ()), "a table that it does not capture"
    assert not owner.has_published(_read("other/shop.orders#3:7/0"), ()), "another server's table of that name"
    assert not owner.has_published(_read("no id"), ())
    assert owner.has_published(record(offset=5, at=4), {"shop.orders"})
    assert not owner.has_published(record(offset=5, at=4), {"payroll.salaries"}), "written during the window"


@pytest.mark.parametrize(
    "id", [b"\xff/binlog.000001:4/0", b"s/b.1:" + b"9" * 5000 + b"/0", b"s/b." + b"9" * 5000 + b":4/0"]
)
def test_foreign_headers_do_not_stop_a_search(id: bytes) -> None:
    shown = view(shop()).show(replace(record({"after": "x"}), headers=(("changefeed.id", id),)))
    assert shown.coordinates in ("", "binlog.000001:4")


def test_only_rows_of_snapshots_are_shown_as_read_by_one() -> None:
    read, other = _read(f"{SERVER}/shop.orders#3:7/0"), _read("no id")
    shown = [view(shop()).show(one).to_json() for one in (read, other, record())]
    assert [(one["is_read"], one["coordinates"]) for one in shown] == [
        (True, ""),
        (False, ""),
        (False, "binlog.000001:4"),
    ]


@pytest.mark.parametrize("after", ["x", 5, [{"a": 1}]])
def test_foreign_values_have_no_changes(after: Any) -> None:
    value = {"op": "c", "source": {"db": "shop", "table": "orders"}, "before": None, "after": after}
    assert view(shop()).show(record(value)).changes == ()


def test_times_before_1970_are_the_beginning() -> None:
    assert RecordFilter.of(None, None, None, "1969-01-01", None).since_ms == 0


def _read(id: str) -> KafkaRecord:
    return replace(record(), headers=(("changefeed.id", id.encode()),))
