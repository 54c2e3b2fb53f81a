"""A snapshot's stored records, the windows that it depends on, and its conditions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from changefeed.errors import BinlogGoneError, SettingsError, SourceUnavailableError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import DependencyRecord, LogEntry, LogRecord, SealRecord
from changefeed.kafka.commit_log.snapshots import ChunkRecord, PlannedChunk, SnapshotRecord, TableProgress
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.key_range import KeyRange
from changefeed.model.manifest import Manifest
from changefeed.model.window import Failover, Window
from changefeed.settings.message_rules import check_snapshot_dependency, message_rules
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.settings.sql_condition import parse_server_condition
from changefeed.snapshot.planning import check_takes_snapshots
from changefeed.snapshot.published_position import is_covered
from changefeed.snapshot.snapshot_status import progress_line, status_of

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ORDERS = TableProgress("shop", "orders", "id int", 100, ("40",), rows=20, chunks=2)
SNAPSHOT = SnapshotRecord(
    {"pipeline": "shop", "tables": ["shop.*"]},
    {"format": "0123"},
    (ORDERS, TableProgress("shop", "log", "", 7, at_end=True)),
    1_767_225_600_000,
    number=6,
    round=(
        PlannedChunk(3, "shop", "orders", KeyRange(("20",), ("30",))),
        PlannedChunk(4, "shop", "orders", KeyRange(("30",), ("40",))),
        PlannedChunk(5, "shop", "log", has_key=False),
    ),
    seconds=4.0,
)


def plain(**settings: object) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "shop", "source": {"connection": "m"}, "kafka": {"connection": "k"}, **settings}
    )


def stored(record: LogRecord) -> LogEntry:
    entry = LogEntry.of(KafkaRecord("log", 0, 0, record.key("shop"), record.value(), (), 0, stamped_by_broker=False))
    assert entry is not None
    return entry


@pytest.mark.parametrize("record", [SNAPSHOT, ChunkRecord(4, "shop.orders", 10, 3)])
def test_stored_records_of_a_snapshot_are_read_back(record: LogRecord) -> None:
    assert stored(record).read() == record


def test_published_chunks_are_counted_and_others_remain() -> None:
    there = [ChunkRecord(4, "shop.orders", 10, 3), ChunkRecord(2, "shop.orders", 10, 0)]
    left = SNAPSHOT.with_chunks(there)
    assert [chunk.number for chunk in left.round] == [3, 5]
    assert left.tables[0] == replace(ORDERS, rows=30, left_out=3, chunks=3)
    assert not left.is_done
    ends = replace(left, round=(), tables=(replace(ORDERS, at_end=True), left.tables[1]))
    assert ends.is_done


def test_the_status_says_chunks_rows_speed_and_time_left() -> None:
    status = status_of("shop.snapshot.x", SNAPSHOT.with_chunks([]))
    assert (status.chunks, status.rows, status.rows_per_second, status.tables_done) == (2, 20, 5, 0)
    assert status.seconds_left == (80 + 7) // 5
    assert "20 of about 107 rows" in progress_line(SNAPSHOT)


PLAIN_VALUES = {"decimal": "string", "temporal": "iso", "binary": "base64", "bigint_unsigned": "number"}


def window(number: int, start: int, head: int, uuid: str = "u") -> Window:
    begin, end = (BinlogCoordinates("bin.000001", position) for position in (start, head))
    return Window("shop", number, uuid, begin, end, "", "", 0)


def log_of(*windows: tuple[Window, str]) -> CommitLogState:
    return CommitLogState(
        tuple(stored(SealRecord(Manifest(each, 0, 0, 0, {}, 0, (), rules=rules))) for each, rules in windows)
    )


@pytest.mark.parametrize(
    ("state", "covered"),
    [
        (log_of((window(1, 4, 50), "a"), (window(2, 50, 100), "a")), True),
        (log_of((window(1, 4, 50), "b"), (window(2, 50, 100), "a")), False),
        (log_of((window(2, 50, 100), "a")), False),
        (log_of((window(1, 4, 40), "a"), (window(3, 50, 100), "a")), False),
        (log_of((window(1, 4, 50), ""), (window(2, 50, 100), "a")), False),
        (log_of((window(1, 4, 50, "other"), "a"), (window(2, 50, 100), "a")), False),
    ],
    ids=["all", "other settings", "forgotten", "skipped by a seek", "earlier version", "another server"],
)
def test_range_is_covered_if_all_windows_are_known_and_of_the_same_settings(
    state: CommitLogState, covered: bool
) -> None:
    end = Checkpoint("shop", 2, "u", BinlogCoordinates("bin.000001", 100), "", 0)
    assert is_covered(state, "u", BinlogCoordinates("bin.000001", 20), end, "a") is covered
    assert is_covered(state, "u", end.coordinates, end, "a")


def test_range_is_not_covered_for_a_table_that_a_window_left_out() -> None:
    """Its changes there may have been given up, so rows that were read before must not rely on them."""
    left_out = Manifest(window(2, 50, 100), 0, 0, 0, {}, 0, (), rules="a", parked=("shop.orders",))
    whole = Manifest(window(1, 4, 50), 0, 0, 0, {}, 0, (), rules="a")
    state = CommitLogState((stored(SealRecord(whole)), stored(SealRecord(left_out))))
    end = Checkpoint("shop", 2, "u", BinlogCoordinates("bin.000001", 100), "", 0)
    for tables, covered in ((["shop.items"], True), (["shop.items", "shop.orders"], False)):
        assert is_covered(state, "u", BinlogCoordinates("bin.000001", 20), end, "a", tables) is covered


def test_failover_to_server_without_changes_of_left_out_rows_waits_for_them() -> None:
    began = plain(tables={"include": ["shop.*"]})
    rules = message_rules(began)
    there, lost = (
        DependencyRecord("shop.snapshot.x", "u", "bin.000001:70", rules, ("shop.orders",), gtids)
        for gtids in (f"{UUID}:7-9", f"{UUID}:7-10")
    )
    after = replace(
        window(3, 60, 100, "v"), head_gtids=f"{UUID}:1-9", failover=Failover("u", 2, f"{UUID}:1-6", "bin.000001:60")
    )
    check_snapshot_dependency(after, there, began)
    assert stored(lost).read() == lost
    with pytest.raises(SourceUnavailableError, match=rf"does not have transactions {UUID}:10.*shop\.orders"):
        check_snapshot_dependency(after, lost, began)
    with pytest.raises(BinlogGoneError, match="has other transactions"):
        check_snapshot_dependency(after, there, began, "has other transactions")


def test_window_that_a_snapshot_depends_on_is_refused_under_other_settings() -> None:
    began = plain(tables={"include": ["shop.*"]})
    dependency = DependencyRecord("shop.snapshot.x", "u", "bin.000001:70", message_rules(began), ("shop.orders",), "")
    assert stored(dependency).read() == dependency
    check_snapshot_dependency(window(3, 60, 100), dependency, began)
    check_snapshot_dependency(window(3, 60, 100), dependency, plain(tables={"include": ["shop.*", "more.*"]}))
    with pytest.raises(SettingsError, match=r"tables \(shop.orders is left out now\).*bin.000001:70"):
        check_snapshot_dependency(window(3, 60, 100), dependency, plain(tables={"include": ["more.*"]}))
    with pytest.raises(SettingsError, match="format"):
        check_snapshot_dependency(
            window(3, 60, 100), dependency, plain(tables={"include": ["shop.*"]}, format="maxwell")
        )


@pytest.mark.parametrize(
    "settings", [{"skip": ["r"]}, {"skip": ["u"]}, {"reader": "reference", "values": PLAIN_VALUES}]
)
def test_settings_that_break_snapshots_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"skip|reference"):
        check_takes_snapshots(plain(**settings))
    check_takes_snapshots(plain(skip=["d"]))


def test_condition_is_sent_to_the_server_as_it_was_parsed() -> None:
    condition = parse_server_condition("status = 'it''s' AND id BETWEEN 1 AND 5 /*! OR 1 */")
    assert condition.sql == "`status` = 'it''s' AND `id` BETWEEN 1 AND 5"
    assert set(condition.columns) == {"status", "id"}
    for sql in ("1=1) UNION SELECT 1", "SLEEP(1)", "id IN (SELECT 1)", "before.id = 1", "id = @@version", "1"):
        with pytest.raises(SettingsError, match="snapshot: where"):
            SnapshotRequest.of({"pipeline": "shop", "where": sql})


def test_a_request_with_another_speed_is_the_same_snapshot() -> None:
    slow, fast = (SnapshotRequest(pipeline="shop", tables=["shop.*"], rows_per_second=rate) for rate in (1, None))
    assert slow.fingerprint == fast.fingerprint
    assert slow.fingerprint != SnapshotRequest(pipeline="shop", tables=["shop.orders"]).fingerprint
    assert json.loads(slow.model_dump_json())["rows_per_second"] == 1
