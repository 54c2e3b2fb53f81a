"""The freshness of the last hour, from the windows that were sealed in it."""

from __future__ import annotations

from changefeed.model.freshness import HOUR_SECONDS, Freshness, recent_freshness

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
