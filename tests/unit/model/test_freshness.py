"""The freshness of the last hour, from the windows that were sealed in it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from changefeed.model.freshness import HOUR_SECONDS, NONE_MERGED, Freshness, MergedFreshness, recent_freshness

NOW = 1_795_255_256_000


def test_equal_windows_count_the_same() -> None:
    windows = [(NOW - 1000 * number, {"shop.t": 2.0 if number > 50 else 1.0}) for number in range(1, 101)]
    assert recent_freshness(windows, NOW) == Freshness(2.0, 2.0, 100, NOW - 100_000, {"shop.t": 1.0})


def test_a_window_after_an_outage_counts_for_as_long_as_its_changes_waited() -> None:
    windows = [(NOW - 1000 * number, {"shop.t": 1.0}) for number in range(1, 2001)]
    found = recent_freshness([*windows, (NOW, {"shop.t": 600.0})], NOW)
    assert found is not None
    assert (found.p50_seconds, found.p99_seconds) == (1.0, 600.0)


def test_window_counts_with_its_slowest_table_and_a_table_with_its_last_window() -> None:
    windows = [(NOW - 20, {"shop.a": 1.0, "shop.b": 9.0}), (NOW - 10, {"shop.a": 2.0})]
    found = recent_freshness(windows, NOW)
    assert found is not None
    assert (found.p50_seconds, found.p99_seconds) == (9.0, 9.0)
    assert found.tables == {"shop.a": 2.0, "shop.b": 9.0}
    assert found.summary == "readable 9.0 s after commit (99 %: 9.0 s)"


def test_idle_hour_has_no_freshness() -> None:
    old = NOW - HOUR_SECONDS * 1000 - 1
    assert recent_freshness([(old, {"shop.t": 1.0}), (NOW, {})], NOW) is None
    assert recent_freshness([], NOW) is None


def windows_of_an_hour() -> list[tuple[int, dict[str, float]]]:
    """A window a second, one table of a single one, and an outage of four minutes."""
    quick = [(NOW - 1000 * number, {"shop.t": 0.5 + number % 7 / 10}) for number in range(1, 3300)]
    return [*quick, (NOW - 1_800_000, {"shop.t": 240.0}), (NOW - 3_000_000, {"shop.seldom": 0.7})]


def test_merged_windows_count_as_if_they_were_not_merged_with_a_tenth_more() -> None:
    windows = windows_of_an_hour()
    expected = recent_freshness(windows, NOW)
    assert expected is not None
    merged = NONE_MERGED
    ordered = sorted(windows, key=lambda each: each[0])
    old, kept = ordered[:-300], ordered[-300:]
    for begin in range(0, len(old), 200):
        merged = MergedFreshness.from_json(orjson.loads(orjson.dumps(merged.add(old[begin : begin + 200]).to_json())))
    found = recent_freshness(kept, NOW, merged)
    assert found is not None
    assert found.windows == expected.windows
    assert found.tables == expected.tables
    assert expected.p50_seconds <= found.p50_seconds <= 1.1 * expected.p50_seconds
    assert 240 <= found.p99_seconds <= 264
    assert expected.since_ms - 300_000 <= found.since_ms <= expected.since_ms


def test_record_of_merged_windows_stays_small_and_ends_after_an_hour() -> None:
    merged = NONE_MERGED
    for hour in range(5):
        merged = merged.add([(at + hour * HOUR_SECONDS * 1000, tables) for at, tables in windows_of_an_hour()])
        assert len(orjson.dumps(merged.to_json())) < 3000
        assert sum(count for _, _, count in merged.windows()) < 2 * 3302
    assert recent_freshness([], NOW + 6 * HOUR_SECONDS * 1000, merged) is None
    many = merged.add([(NOW + 5 * HOUR_SECONDS * 1000, {f"shop.t{number}": 1.0 for number in range(3000)})])
    assert len(many.tables) == 1000


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"slots": {"1": {"99999": 1}}, "tables": {}},
        {"slots": {"1": {"1": 10**400}}, "tables": {}},
        {"slots": {"1": {"1": -1}}, "tables": {}},
        {"slots": {"x": {"1": 1}}, "tables": {}},
        {"slots": {}, "tables": {"a": 1}},
        {"slots": [], "tables": {}},
    ],
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, KeyError, AttributeError, ValueError)):
        MergedFreshness.from_json(value)
