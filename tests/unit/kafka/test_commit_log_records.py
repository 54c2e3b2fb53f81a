"""The commit log's records are read as they were always written, and a new kind is one more class."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest

from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log import records
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import (
    AttemptRecord,
    BegunRecord,
    ClaimRecord,
    DiscardRecord,
    FirstRecord,
    Foreign,
    LogEntry,
    LogRecord,
    NumberRecord,
    OrderRecord,
    ParkedRecord,
    ProgressRecord,
    RenamedRecord,
    SealRecord,
    SeekLogRecord,
    TakeoverRecord,
    VerifyRecord,
    latest_entries,
)
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import Progress
from changefeed.model.binlog_order import BinlogOrder
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, TopicPartitionReceipt
from changefeed.model.seek import SeekRecord
from changefeed.model.window import Failover, HighWaterMark, Window

PACKAGE = Path(records.__file__).parents[2]
WINDOW = Window(
    pipeline="shop",
    number=7,
    server_uuid="uuid-b",
    start=BinlogCoordinates("bin.000009", 4077),
    head=BinlogCoordinates("bin.000010", 500),
    start_gtids="uuid-a:1-5",
    head_gtids="uuid-a:1-9",
    frozen_at_ms=1767225600000,
    plan_seconds=0.25,
    failover=Failover("uuid-a", 6, "uuid-a:1-5", "bin.000004:154"),
)
WINDOW_TEXT = (
    b'{"pipeline":"shop","number":7,"server_uuid":"uuid-b","start":"bin.000009:4077","head":"bin.000010:500",'
    b'"start_gtids":"uuid-a:1-5","head_gtids":"uuid-a:1-9","frozen_at_ms":1767225600000,"plan_seconds":0.25,'
    b'"failover":{"from_uuid":"uuid-a","window":6,"published":"uuid-a:1-5","at":"bin.000004:154"}}'
)
RECEIPT = TopicPartitionReceipt("shop.orders", 0, 2, 1, 100, 0, 10, 13, {"failover": 1})
MANIFEST = Manifest(
    WINDOW, 1396, 15, 5, {"shop.orders": {"c": 3, "d": 1}}, 8, (RECEIPT,), {"ingest": 1.5}, "uuid-a:1-9"
)
SEEK = SeekRecord(
    8,
    1767225600001,
    "ann",
    "a reason",
    "latest",
    "bin.000009:4077",
    "uuid-a:1-5",
    "bin.000010:500",
    "uuid-a:1-9",
    100,
    0,
    "uuid-b",
)
PROGRESS = Progress(
    origin="bin.000010",
    position=480,
    sequence=36,
    window=7,
    source="uuid-b",
    gtid="uuid-a:9",
    messages=3,
    value_bytes=100,
    first_offset=10,
    last_offset=13,
    gtid_messages=2,
    digest="00000000ffffffff",
    partitions=2,
    topic_id="abc",
)

STORED: list[tuple[bytes, bytes, LogRecord]] = [
    (
        b'["shop","progress","shop.orders",0]',
        b'{"file": "bin.000010", "position": 480, "sequence": 36, "window": 7, "source": "uuid-b", "gtid": "uuid-a:9", '
        b'"messages": 3, "value_bytes": 100, "dead_letters": 0, "first_offset": 10, "last_offset": 13, '
        b'"gtid_messages": 2, "digest": "00000000ffffffff", "partitions": 2, "topic_id": "abc"}',
        ProgressRecord("shop.orders", 0, PROGRESS),
    ),
    (
        b'["shop","seal",7]',
        b'{"window":' + WINDOW_TEXT + b',"size_bytes":1396,"events":15,"transactions":5,"rows":{"shop.orders":{"c":3,'
        b'"d":1}},"skipped_rows":8,"topics":[{"topic":"shop.orders","partition":0,"messages":2,"already_there":1,'
        b'"value_bytes":100,"dead_letters":0,"first_offset":10,"last_offset":13,"dropped":{"failover":1}}],'
        b'"seconds":{"ingest":1.5},"gtids":"uuid-a:1-9","schemas":"","transformed_away":{}}',
        SealRecord(MANIFEST),
    ),
    (
        b'["shop","seek",8]',
        b'{"number":8,"at_ms":1767225600001,"who":"ann","why":"a reason","asked":"latest","before":"bin.000009:4077",'
        b'"before_gtids":"uuid-a:1-5","to":"bin.000010:500","to_gtids":"uuid-a:1-9","skipped_bytes":100,'
        b'"repeated_bytes":0,"server_uuid":"uuid-b","discarded":[]}',
        SeekLogRecord(SEEK),
    ),
    (b'["shop","attempt"]', b'{"attempt":"aaaaaaaa","tasks":4}', AttemptRecord("aaaaaaaa", 4)),
    (b'["shop","takeover"]', b'{"number":12}', TakeoverRecord(12)),
    (b'["shop","renamed"]', b'"store"', RenamedRecord("store")),
    (
        b'["shop", "lease", "aaaa"]',
        b'{"first": 12, "who": "process 1 on host"}',
        ClaimRecord("aaaa", 12, "process 1 on host"),
    ),
    (
        b'["shop","begun",7]',
        WINDOW_TEXT[:-1] + b',"rules":{"format":"1f"},"marks":[{"topic":"shop.orders","partition":0,"window":6,'
        b'"gtid":"uuid-a:7","messages":4,"given":9}],"schema_ids":{"shop.orders-value":12}}',
        BegunRecord(
            WINDOW, {"format": "1f"}, (HighWaterMark("shop.orders", 0, 6, "uuid-a:7", 4, 9),), {"shop.orders-value": 12}
        ),
    ),
    (
        b'["shop","begun",7]',
        WINDOW_TEXT[:-1] + b',"rules":{},"marks":[],"parked":["shop.orders"]}',
        BegunRecord(WINDOW, parked=("shop.orders",)),
    ),
    (
        b'["shop","parked","shop.orders"]',
        b'{"source":"uuid-b","at":"bin.000009:4077","gtids":"uuid-a:1-5","reason":"it fails","since_ms":1767225600000}',
        ParkedRecord("shop.orders", "uuid-b", "bin.000009:4077", "uuid-a:1-5", "it fails", 1767225600000),
    ),
    (
        b'["shop","discard",1767225600000]',
        b'{"at_ms":1767225600000,"who":"ada","why":"replayed","up_to":{"1":41},"letters":2,"tables":["shop.orders"]}',
        DiscardRecord(1767225600000, "ada", "replayed", {1: 41}, 2, ("shop.orders",)),
    ),
    (
        b'["shop","order",7]',
        b'{"sources":["uuid-a","0-1"],"runs":[0,5,2,1,9,1,0,-3,1]}',
        OrderRecord(7, BinlogOrder((("uuid-a", 5, 6), ("0-1", 9, 9), ("uuid-a", 3, 3)))),
    ),
    (
        b'["shop","first"]',
        b'{"pipeline":"shop","window":0,"server_uuid":"uuid-b","coordinates":"bin.000009:4077","gtids":"uuid-a:1-5",'
        b'"committed_at_ms":1767225600000}',
        FirstRecord(
            Checkpoint("shop", 0, "uuid-b", BinlogCoordinates("bin.000009", 4077), "uuid-a:1-5", 1767225600000)
        ),
    ),
    (
        b'["shop","number","shop.orders",0]',
        b'{"next":481,"topic_id":"abc"}',
        NumberRecord("shop.orders", 0, 481, "abc"),
    ),
]
"""Keys and values as they are stored."""


def stored(key: bytes | None, value: bytes | None, offset: int = 0) -> KafkaRecord:
    return KafkaRecord("log", 0, offset, key, value, (), 0, stamped_by_broker=True)


@pytest.mark.parametrize(("key", "value", "record"), STORED, ids=[record.kind for *_, record in STORED])
def test_what_is_stored_is_read(key: bytes, value: bytes, record: LogRecord) -> None:
    assert entry_of(stored(key, value)).read() == record


@pytest.mark.parametrize(("key", "value", "record"), STORED, ids=[record.kind for *_, record in STORED])
def test_a_record_replaces_the_stored_one_and_is_written_as_it_was(key: bytes, value: bytes, record: LogRecord) -> None:
    """The log is compacted by the bytes of keys."""
    assert record.key("shop") == key
    assert record.key_of("shop", *record.parts) == key
    assert entry_of(stored(key, record.value())).read() == record
    assert json.loads(record.value()) == json.loads(value)


def test_fields_of_a_newer_version_are_left_out() -> None:
    for key, value, record in STORED:
        if record.kind in ("progress", "seal", "seek"):
            assert entry_of(stored(key, value[:-1] + b',"something_new":1}')).read() == record


def test_the_last_record_of_a_key_counts_and_a_tombstone_forgets_it() -> None:
    one, two = [b'["shop","seek",%d]' % number for number in (1, 2)]
    entries = latest_entries([stored(one, b"1", 0), stored(two, b"2", 1), stored(one, b"3", 2), stored(two, None, 3)])
    assert [(entry.parts, entry.record.value) for entry in entries] == [((1,), b"3")]


def test_a_kind_that_this_version_does_not_know_is_kept_and_not_interpreted() -> None:
    newer = stored(b'["shop","watermark","c",1]', b"\x00not even JSON")
    state = CommitLogState(tuple(latest_entries([newer, stored(*STORED[3][:2])])))
    assert state.attempt == "aaaaaaaa"
    assert state.of(AttemptRecord) == [AttemptRecord("aaaaaaaa", 4)]
    (unknown,) = state.unknown
    assert (unknown.kind, unknown.parts, unknown.record) == ("watermark", ("c", 1), newer)


_DECLARED = re.compile(r'\((?:LogRecord|Note), kind="(\w+)"\)')


def test_every_kind_that_is_stored_is_declared_in_the_room_of_the_commit_log() -> None:
    """So that a process that has nothing to do with snapshots knows their records too."""
    files = [path for path in PACKAGE.rglob("*.py") if _DECLARED.search(path.read_text())]
    assert {path.parent.name for path in files} == {"commit_log"}
    declared = {kind for path in files for kind in _DECLARED.findall(path.read_text())}
    assert declared == set(records.KINDS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["shop","seal",7]', b"what?"),
        (b'["shop","seal",7]', b'{"window":7}'),
        (b'["shop","progress","shop.orders"]', STORED[0][1]),
    ],
)
def test_a_record_that_is_not_ours_is_an_error_that_quotes_it(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CheckpointError, match="only changefeed may write") as unreadable:
        read_all(CommitLogState(tuple(latest_entries([stored(key, value, 41)]))))
    assert repr(key) in str(unreadable.value)
    assert "offset 41" in str(unreadable.value)


@pytest.mark.parametrize("key", [None, b"not json", b'["shop"]', b"7", b'[1,"seal",7]', b'{"shop":"seal"}', b"\xff"])
def test_a_key_of_another_form_is_left_out_and_named(key: bytes | None) -> None:
    foreign: list[Foreign] = []
    entries = latest_entries([stored(key, b"1", 41), stored(*STORED[3][:2])], foreign=foreign)
    assert [entry.record.key for entry in entries] == [STORED[3][0]]
    assert "at offset 41 (its key is none of changefeed's)" in str(*foreign)


def test_a_note_that_cannot_be_read_is_left_out() -> None:
    state = CommitLogState(tuple(latest_entries([stored(b'["shop","verify","x"]', b"what?")])))
    assert state.of(VerifyRecord) == []


def entry_of(record: KafkaRecord) -> LogEntry:
    entry = LogEntry.of(record)
    assert entry is not None
    return entry


def read_all(state: CommitLogState) -> list[Any]:
    return [*state.progress.values(), *state.seals.values()]


@pytest.mark.parametrize("tasks", [10**12, 0])
def test_an_attempt_of_more_tasks_than_can_be_fenced_is_not_ours(tasks: int) -> None:
    value = json.dumps({"attempt": "a", "tasks": tasks}).encode()
    with pytest.raises(CheckpointError, match="only changefeed may write"):
        entry_of(stored(b'["shop","attempt"]', value)).read()


def test_a_long_value_is_compressed() -> None:
    receipts = tuple(TopicPartitionReceipt(f"shop.{number}", 0, 2, 1, 100, 0, 10, 13) for number in range(5000))
    seal = SealRecord(replace(MANIFEST, topics=receipts))
    value = seal.value()
    assert len(value) < len(json.dumps(seal.to_json())) / 10
    assert entry_of(stored(seal.key("shop"), value)).read() == seal


def test_a_value_is_read_only_when_it_is_asked_for() -> None:
    unreadable = [stored(b'["shop","seal",%d]' % number, b"{}") for number in (5, 6)]
    state = CommitLogState(tuple(latest_entries([*unreadable, stored(*STORED[1][:2])])))
    assert list(state.seals) == [5, 6, 7]
    assert state.seals[7] == MANIFEST
    assert state.seals.get(8) is None
    with pytest.raises(CheckpointError):
        state.seals[6]


def test_a_claim_says_that_it_is_brief_where_it_is() -> None:
    claim = ClaimRecord("aaaa", None, "process 1 on host", brief=True)
    assert entry_of(stored(claim.key("shop"), claim.value())).read() == claim


@pytest.fixture
def made_up_kind() -> Iterator[type[LogRecord]]:
    @dataclass(frozen=True)
    class Chunk(LogRecord, kind="chunk"):
        table: str
        rows: int

        @property
        def parts(self) -> tuple[str | int, ...]:
            return (self.table,)

        def to_json(self) -> Any:
            return self.rows

        @classmethod
        def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
            return cls(str(parts[0]), int(value))

    yield Chunk
    del records.KINDS["chunk"]


def test_a_new_kind_is_one_class(made_up_kind: Any) -> None:
    chunk = made_up_kind("shop.orders", 500)
    state = CommitLogState(tuple(latest_entries([stored(chunk.key("shop"), chunk.value())])))
    assert (state.of(made_up_kind), state.unknown) == ([chunk], ())


def test_two_classes_of_one_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="AttemptRecord and Another"):
        type("Another", (LogRecord,), {}, kind="attempt")
