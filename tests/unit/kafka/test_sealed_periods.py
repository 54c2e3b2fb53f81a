"""Seals that are not kept are merged by hour, and later by day: no window is lost or counted twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sealed_windows import MemoryLog

from changefeed.errors import BrokerUnavailableError
from changefeed.kafka.commit_log import owned_log, periods
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.merged_freshness import merged_freshness
from changefeed.kafka.commit_log.periods import PeriodRecord, latest_periods, merge_seals
from changefeed.kafka.commit_log.records import KINDS, BegunRecord, OrderRecord, SealRecord, stored_value
from changefeed.model import sealed_period
from changefeed.model.binlog_order import BinlogOrder
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.freshness import recent_freshness
from changefeed.model.manifest import Manifest, TopicPartitionReceipt
from changefeed.model.sealed_period import HOUR_MS, OTHERS, SealedPeriod, TopicSums
from changefeed.model.window import Window
from changefeed.pipeline.open_windows import check_next, find_unfinished
from changefeed.pipeline.windows import latest_checkpoint

FIRST_MS = 490_000 * HOUR_MS
WINDOWS_AN_HOUR = 40
TABLES = 3


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog("shop", FIRST_MS)


def sealed_ms(number: int) -> int:
    """When window ``number`` is sealed."""
    return FIRST_MS + number * HOUR_MS // WINDOWS_AN_HOUR


def manifest(number: int, tables: int = TABLES) -> Manifest:
    """A window whose counts are those of no other one."""
    start, head = (BinlogCoordinates("bin.000001", 100 * each) for each in (number, number + 1))
    window = Window("shop", number, f"uuid-{number // 100}", start, head, "", "", sealed_ms(number))
    names = [f"shop.table_{(number + each) % (tables + 2)}" for each in range(tables)]
    receipts = tuple(
        TopicPartitionReceipt(name, partition, number, 2, 100 + number, 1, 0, 9, {"failover": 3})
        for name in names
        for partition in (0, 1)
    )
    rows = {name: {"c": number, "u": 2 * number} for name in names}
    filtered = {names[0]: {"d": 1}}
    made = Manifest(window, 1000 + number, 7, 5, rows, 4, receipts, {"plan": 0.5, "ingest": number / 1000})
    return replace(made, filtered=filtered, transformed_away={"mask": number % 2})


def totals_of(manifests: Iterable[Manifest]) -> Counter[str]:
    """The sums as a reader of single manifests computes them."""
    totals: Counter[str] = Counter()
    for one in manifests:
        totals.update(windows=1, bytes=one.size_bytes, events=one.events, transactions=one.transactions)
        totals.update(skipped=one.skipped_rows, dead=one.dead_letters, messages=one.message_count, rows=one.row_count)
        totals.update({f"rows {table} {op}": count for table, ops in one.rows.items() for op, count in ops.items()})
        totals.update({f"filtered {table}": sum(ops.values()) for table, ops in one.filtered.items()})
        totals.update({f"records {topic}": count for topic, count in one.records.items()})
        totals.update({f"away {name}": count for name, count in one.transformed_away.items()})
        totals.update({f"ms {phase}": round(1000 * seconds) for phase, seconds in one.seconds.items()})
    return +totals


def totals_of_periods(found: Sequence[SealedPeriod]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for one in found:
        totals.update(windows=one.windows, bytes=one.size_bytes, events=one.events, transactions=one.transactions)
        totals.update(skipped=one.skipped_rows, dead=one.dead_letters, messages=one.message_count, rows=one.row_count)
        totals.update({f"rows {table} {op}": count for table, ops in one.rows.items() for op, count in ops.items()})
        totals.update({f"filtered {table}": sum(ops.values()) for table, ops in one.filtered.items()})
        totals.update({f"records {topic}": sums.messages for topic, sums in one.topics.items()})
        totals.update({f"away {name}": count for name, count in one.transformed_away.items()})
        totals.update({f"ms {phase}": round(1000 * seconds) for phase, seconds in one.seconds.items()})
    return +totals


def seal_windows(log: MemoryLog, numbers: Iterable[int], keep: int = 10) -> None:
    for number in numbers:
        log.now_ms = sealed_ms(number)
        log.log.seal(manifest(number), log.state, keep=keep)


def test_each_window_is_in_a_seal_or_in_one_hour_whatever_fails(log: MemoryLog) -> None:
    """A failed write leaves nothing of its transaction, or all of it without the writer knowing."""
    chances = random.Random(4)
    for number in range(1, 201):
        log.now_ms = sealed_ms(number)
        while number not in log.state.seals:
            log.fails = chances.choice(["", "", "before", "after"])
            state = log.state
            for _ in range(chances.choice([1, 2])):  # the second one with the state from before the first
                try:
                    log.log.seal(manifest(number), state, keep=20)
                except BrokerUnavailableError:
                    break
        if number % 10:
            continue
        seals, found = log.state.seals, latest_periods(log.state, 1000)
        assert totals_of(seals.values()) + totals_of_periods(found) == totals_of(map(manifest, range(1, number + 1)))
    assert [one.hour - FIRST_MS // HOUR_MS for one in found] == [4, 3, 2, 1, 0]
    assert 20 <= len(seals) <= 22


def test_freshness_of_the_last_hour_counts_windows_whose_seals_are_merged(log: MemoryLog) -> None:
    """Also if a write fails, without or with its effect, and is repeated."""
    chances = random.Random(5)
    for number in range(1, 101):
        log.now_ms = sealed_ms(number)
        made = replace(manifest(number), freshness_seconds={f"shop.t{number % 3}": 1.0 + number / 100})
        while number not in log.state.seals:
            log.fails = chances.choice(["", "before", "after"])
            with suppress(BrokerUnavailableError):
                log.log.seal(made, log.state, keep=3)
    found = recent_freshness(
        [(log.state.sealed_at_ms(number), each.freshness_seconds) for number, each in log.state.seals.items()],
        log.now_ms,
        merged_freshness(log.state),
    )
    assert found is not None
    assert WINDOWS_AN_HOUR - WINDOWS_AN_HOUR // 12 - 1 <= found.windows <= WINDOWS_AN_HOUR + 1
    assert found.tables == {"shop.t0": 1.99, "shop.t1": 2.0, "shop.t2": 1.98}
    assert 1.7 <= found.p50_seconds <= 2.0


def test_seals_that_are_written_again_later_count_in_the_hours_of_their_windows(log: MemoryLog) -> None:
    """As `sign` and `rename` write them: with the broker's time of now."""
    seal_windows(log, range(1, 131), keep=200)
    log.now_ms = sealed_ms(10_000)
    log.log.write({record.key or b"": record.value for record in log.live}, "to sign the records")
    seal_windows(log, range(131, 133), keep=1)
    hours = [(one.hour - FIRST_MS // HOUR_MS, one.windows) for one in latest_periods(log.state, 1000)]
    assert hours == [(3, 12), (2, 40), (1, 40), (0, 39)]


def test_hour_has_the_range_and_the_servers_of_its_windows(log: MemoryLog) -> None:
    seal_windows(log, range(1, 131), keep=1)
    last, *_, first = latest_periods(log.state, 1000)
    assert (first.first, first.last, first.windows) == (1, 39, 39)
    assert (first.begins_ms, str(first.start), str(first.head)) == (FIRST_MS, "bin.000001:100", "bin.000001:4000")
    assert (last.first, last.last, last.servers) == (120, 129, ("uuid-1",))
    assert latest_periods(log.state, 2)[1].servers == ("uuid-0", "uuid-1"), "a failover in the middle of the hour"


def test_few_seals_write_the_record_of_their_hour_again(log: MemoryLog) -> None:
    seal_windows(log, range(1, 301), keep=100)
    key = PeriodRecord.kind.encode()
    writes = [records for records in log.writes if any(b'"%s"' % key in each for each in records)]
    assert len(writes) == 18, "as 110 seals are one more than a tenth above 100, and then each 11th"
    assert max(len(records) for records in log.writes[:100]) == 3, "seal, begun and order: nothing is forgotten twice"


def test_record_that_was_begun_and_never_forgotten_goes_with_its_seal(log: MemoryLog) -> None:
    seal_windows(log, [1, 2])
    log.log.keep(BegunRecord(manifest(1).window), OrderRecord(1, BinlogOrder(())))
    seal_windows(log, [3], keep=1)
    assert (list(log.state.seals), dict(log.state.begun), dict(log.state.orders)) == ([3], {}, {})


def test_hours_decide_nothing(log: MemoryLog) -> None:
    """The plan, the recovery and the check of the next window are those of the log without its hours."""
    seal_windows(log, range(1, 101))
    with_hours = log.state
    without = CommitLogState(tuple(entry for entry in with_hours.entries if entry.kind != PeriodRecord.kind))
    assert len(without.entries) < len(with_hours.entries)
    following = replace(manifest(101).window, server_uuid="uuid-1", number=101)
    for state in (with_hours, without):
        found = latest_checkpoint("shop", state)
        assert found is not None
        assert (found[0].window, found[0].coordinates) == (100, manifest(100).window.head)
        assert find_unfinished(found[0], state, "uuid-1").windows == ()
        assert find_unfinished(found[0], state, "uuid-1").end == found[0]
        check_next(following, state)
        assert (state.latest_number, state.is_blank) == (100, False)


def test_seals_above_the_sealed_window_are_forgotten_and_not_merged(log: MemoryLog) -> None:
    """As with a state store that was restored from a backup: their changes are published again, and counted then."""
    seal_windows(log, range(1, 21), keep=30)
    log.log.seal(manifest(15), log.state, keep=5)
    (found,) = latest_periods(log.state, 10)
    assert (list(log.state.seals), found.first, found.last) == ([11, 12, 13, 14, 15], 1, 10)


@pytest.mark.parametrize("damage", [b"what?", b"{}", {"rows": 5}, {"rows": {"shop.a": {"c": "x"}}}, {"hour": 10**15}])
def test_unreadable_seal_and_unreadable_hour_stop_no_window(
    log: MemoryLog, caplog: pytest.LogCaptureFixture, damage: bytes | dict[str, Any]
) -> None:
    seal_windows(log, range(1, 13), keep=3)
    (before,) = latest_periods(log.state, 10)
    value = damage if isinstance(damage, bytes) else stored_value(before.to_json() | damage)
    log.write("shop.log", {SealRecord.key_of("shop", 11): b"what?"}, "to damage a record")
    log.write("shop.log", {PeriodRecord(before).key("shop"): value}, "to damage a record")
    assert latest_periods(log.state, 10) == []
    seal_windows(log, range(13, 16), keep=3)
    (found,) = latest_periods(log.state, 10)
    assert (found.first, found.last, found.windows) == (10, 12, 2)
    assert "window 11 is left out of the sums of its hour" in caplog.text


def test_hours_are_merged_into_days_and_no_window_is_lost(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of an hour whose day is merged already, as of a clock that was set back, is added to the day."""
    monkeypatch.setattr(periods, "KEPT_HOURS", 30)
    first_hour = FIRST_MS // HOUR_MS
    for number in range(1, 301):
        log.now_ms = FIRST_MS + (HOUR_MS if number == 250 else number * HOUR_MS // 2)
        one = manifest(number)
        one = replace(one, window=replace(one.window, frozen_at_ms=log.now_ms))
        log.log.seal(one, log.state, keep=1)
        found = latest_periods(log.state, 1000)
        if number % 10 == 0:
            totals = totals_of(log.state.seals.values()) + totals_of_periods(found)
            assert totals == totals_of(map(manifest, range(1, number + 1)))
    hours, days = ([one.hour for one in found if one.hours == length] for length in (1, 24))
    assert hours == [first_hour + 149 - each for each in range(len(hours))]
    assert days == [hours[-1] - 24 * each for each in range(1, len(days) + 1)]
    assert (days[-1], found[-1].last) == (first_hour // 24 * 24, 250)
    assert len(hours) <= 30


def test_oldest_periods_go_beyond_the_limit_of_bytes(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    seal_windows(log, range(1, 161), keep=1)
    complete_hour = len(PeriodRecord(latest_periods(log.state, 1)[0]).value())
    monkeypatch.setattr(periods, "KEPT_PERIOD_BYTES", 2 * complete_hour)
    seal_windows(log, [161, 162], keep=1)
    assert [one.hour - FIRST_MS // HOUR_MS for one in latest_periods(log.state, 10)] == [4, 3]
    monkeypatch.setattr(periods, "KEPT_PERIOD_BYTES", 1)
    seal_windows(log, [163], keep=1)
    assert [one.hour - FIRST_MS // HOUR_MS for one in latest_periods(log.state, 10)] == [4]


def test_hour_of_many_tables_is_bounded_and_its_sums_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_period, "MOST_NAMES", 4)
    manifests = [manifest(number, tables=8) for number in range(1, 50)]
    parts = [SealedPeriod.of_window(0, each) for each in manifests]
    one = SealedPeriod.of(0, 1, [SealedPeriod.of(0, 1, parts[:30]), *parts[30:]])
    assert OTHERS in one.rows
    assert OTHERS in one.topics
    assert len(one.rows) == len(one.topics) == 5
    assert one.row_count == sum(each.row_count for each in manifests)
    assert one.message_count == sum(each.message_count for each in manifests)


@pytest.mark.parametrize(("tables", "years"), [(10, 10), (100, 2)])
def test_sums_of_years_are_kept(tables: int, years: int) -> None:
    chances = random.Random(1)
    names = [f"{chances.choice(['sales', 'stock'])}.{chances.randbytes(6).hex()}" for _ in range(tables)]
    counts = {name: [chances.randrange(10**6) for _ in range(5)] for name in names}
    one = replace(
        SealedPeriod.of_window(490_000, manifest(1)),
        rows={name: {"c": c, "d": d, "u": u} for name, (c, d, u, *_) in counts.items()},
        topics={name: TopicSums(c + d + u, 1000 * size) for name, (c, d, u, size, _) in counts.items()},
    )
    records = periods.KEPT_HOURS + 365 * years
    assert records * len(PeriodRecord(one).value()) < periods.KEPT_PERIOD_BYTES


def test_hour_is_read_as_it_is_stored_and_newer_fields_are_ignored() -> None:
    one = SealedPeriod.of(490_000, 1, [SealedPeriod.of_window(490_000, manifest(each)) for each in (1, 2)])
    assert SealedPeriod.from_json({**one.to_json(), "newer": 1}) == one
    assert PeriodRecord(one).key("shop") == b'["shop","period",490000,1]'
    assert PeriodRecord(one).value().startswith(b"x"), "compressed"


def test_older_version_leaves_hours_alone(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    seal_windows(log, range(1, 31))
    monkeypatch.delitem(KINDS, PeriodRecord.kind)
    state = log.state
    assert [entry.kind for entry in state.unknown] == ["period"]
    assert (max(state.seals), state.latest_number) == (30, 30)
    assert merge_seals(CommitLogState(), [], "shop") == {}
    assert owned_log.KEPT_SEALS == 100
