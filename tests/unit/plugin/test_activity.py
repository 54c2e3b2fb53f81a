"""Rows of the last hour, and the last events of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.sealed_period import HOUR_MS, SealedPeriod, TopicSums
from changefeed_web.activity import (
    BIN_SECONDS,
    BINS,
    Ddl,
    SealedWindow,
    ddl_events,
    failure_events,
    freshness,
    last_hour,
    latest,
    recent_dead_letters,
    snapshot_events,
    verb_of,
    window_events,
)

NOW = 1_795_255_256_000


def window(number: int, age_seconds: float, rows: int, file: str = "binlog.000001") -> SealedWindow:
    start, head = (BinlogCoordinates(file, position) for position in (number * 100, number * 100 + 100))
    sealed = int(NOW - age_seconds * 1000)
    return SealedWindow(number, start, head, sealed - 3000, sealed, rows)


def period(hour: int, letters: int, hours: int = 1) -> SealedPeriod:
    """Merged windows with dead letters, in an hour counted back from the current one."""
    place, topics = BinlogCoordinates("binlog.000001", 4), {"shop.orders": TopicSums(dead_letters=letters)}
    begin = NOW // HOUR_MS - hour
    return SealedPeriod(begin, hours, 9, 1, 9, place, place, ("u",), 1, 1, 1, {}, {}, 0, {}, topics, {})


def ddl(position: int, file: str = "binlog.000001") -> Ddl:
    return Ddl(BinlogCoordinates(file, position), "ALTER", ("shop.orders",))


def test_rows_of_the_last_hour_are_summed_by_two_minutes() -> None:
    windows = [window(4, 0, 7), window(3, 90, 5), window(2, BIN_SECONDS, 3), window(1, BINS * BIN_SECONDS + 1, 1000)]
    found = last_hour(windows, NOW)
    assert found["rows"] == [0] * (BINS - 2) + [3, 12]
    assert (found["total"], found["newest_ms"]) == (15, NOW)


def test_window_of_a_writer_whose_clock_is_ahead_is_in_the_last_bin() -> None:
    assert last_hour([window(1, -500, 2)], NOW)["rows"][-1] == 2


def test_windows_without_rows_are_not_the_newest() -> None:
    assert last_hour([window(1, 10, 0)], NOW)["newest_ms"] is None
    assert last_hour([], NOW) == {
        "rows": [0] * BINS,
        "total": 0,
        "bin_seconds": BIN_SECONDS,
        "newest_ms": None,
        "since_ms": None,
    }


def test_last_hour_begins_with_the_oldest_window_that_is_not_merged() -> None:
    """What was before is not known by the minute, and is not 0."""
    windows = [window(3, 10, 7), window(2, 3 * BIN_SECONDS + 60, 5)]
    found = last_hour(windows, NOW, [period(0, 0)])
    assert found["rows"] == [None] * (BINS - 4) + [5, 0, 0, 7]
    assert (found["total"], found["since_ms"]) == (12, windows[-1].sealed_at_ms)
    assert last_hour(windows, NOW, [period(2, 0)])["since_ms"] is None
    complete = last_hour([*windows, window(1, 3601, 2)], NOW, [period(1, 0)])
    assert (complete["since_ms"], complete["rows"][0]) == (None, 0)


def test_dead_letters_are_of_the_last_hour_although_its_windows_are_merged() -> None:
    """At a window a second, the commit log keeps half an hour of seals."""
    windows = [replace(window(3, 10, 5), dead_letters=1), replace(window(2, 3599, 5), dead_letters=20)]
    windows.append(replace(window(1, 3601, 5), dead_letters=300))
    merged = [period(0, 4000), period(1, 50_000), period(2, 600_000), period(26, 7_000_000, hours=24)]
    assert recent_dead_letters(windows, [], NOW) == 21
    assert recent_dead_letters(windows, merged, NOW) == 54_021
    assert recent_dead_letters([], [], NOW) == 0


def test_windows_of_a_continuous_run_are_one_event() -> None:
    windows = [window(number, 100 - number, 2) for number in range(100, 0, -1)]
    found = window_events([*windows, window(0, 1000, 1)], together_seconds=60)
    assert [(event.at_ms, event.text) for event in found] == [
        (NOW, "windows 41 to 100: 120 rows"),
        (NOW - 60_000, "windows 1 to 40: 80 rows"),
        (NOW - 1000_000, "window 0: 1 row"),
    ]


def test_ddl_has_the_time_of_the_window_that_read_it() -> None:
    windows = [window(3, 10, 1), window(1, 60, 1)]
    found = ddl_events([ddl(50), ddl(100), ddl(199), ddl(250), ddl(300), ddl(150, "other.000001")], windows)
    assert [event.at_ms for event in found] == [windows[1].frozen_at_ms] * 2 + [windows[0].frozen_at_ms]
    assert {event.text for event in found} == {"ALTER shop.orders"}


def test_ddl_is_left_out_if_windows_are_of_servers_with_other_binlog_names() -> None:
    assert ddl_events([ddl(150)], [window(1, 10, 1), window(2, 5, 1, "other.000001")]) == []


def test_statements_are_named_by_their_first_word_only() -> None:
    texts = ["alter table t add c int default 7", "/* x */ CREATE TABLE t (id INT)", ""]
    assert [verb_of(sql) for sql in texts] == ["ALTER", "DDL of", "table definition read again:"]


def test_events_of_all_kinds_are_merged_latest_first() -> None:
    snapshot: dict[str, Any] = {"began_ms": NOW - 30_000, "tables": 2, "rows": 1, "finished": True}
    run: dict[str, Any] = {"run_id": "one", "end_ms": NOW - 20_000}
    found = latest(
        3,
        window_events([window(12, 10, 1400), window(11, 50, 1)]),
        snapshot_events([snapshot]),
        failure_events([run], {"one": "failed in task ingest"}),
    )
    assert [(event["text"], event["tab"]) for event in found] == [
        ("window 12: 1,400 rows", "runs"),
        ("run failed in task ingest", "runs"),
        ("snapshot of 2 tables began, 1 row, finished", "history"),
    ]


def test_freshness_is_of_the_windows_of_the_last_hour_and_none_when_idle() -> None:
    windows = [replace(window(1, 10, 1), freshness_seconds={"shop.orders": 1.5}), window(2, 5, 0)]
    assert freshness(windows, NOW) == {
        "p50_seconds": 1.5, "p99_seconds": 1.5, "windows": 1, "since_ms": NOW - 10_000, "tables": {"shop.orders": 1.5},
    }  # fmt: skip
    assert freshness(windows[1:], NOW) is None
