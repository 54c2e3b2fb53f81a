"""Which pipelines are late. All times are before 12:00 UTC, when they are checked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from changefeed.errors import SettingsError, SourceUnavailableError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.connection import from_environment
from changefeed.operations.check import check, describe_misfit
from changefeed.operations.finding import Level
from changefeed.operations.lag import UNKNOWN, Position, Retention
from changefeed.operations.lateness import describe_lateness, due_time, is_checked
from changefeed.operations.neighbours import Neighbours
from changefeed.operations.status import Status
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import parse_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.schedule import last_scheduled, longest_pause
from changefeed.settings.site import FreshnessSettings

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
SITE = FreshnessSettings(late_minutes=30)


def pipeline(schedule: str = "'*/5 * * * *'", more: str = "") -> Pipeline:
    text = f"name: shop\nsource: {{connection: m}}\nkafka: {{connection: k}}\nschedule: {schedule}\n{more}"
    return parse_pipeline(text, "shop.yaml")


def behind(lag_minutes: float | None, committed_minutes_ago: float, own_changes: bool | None = True) -> Position:
    committed = NOON - timedelta(minutes=committed_minutes_ago)
    lag = None if lag_minutes is None else lag_minutes * 60
    status = Status("shop", "behind", committed_at_ms=int(committed.timestamp() * 1000), lag_bytes=1)
    return Position(status, Retention(lag, None, None, own_changes))


def no_store() -> CheckpointStore:
    raise SettingsError("Airflow is not here")


def lateness(position: Position, of: Pipeline | None = None, written: timedelta = timedelta(days=1)) -> str | None:
    of = of or pipeline()
    return describe_lateness(of, position, SITE.limits_of(of.alerts), now=NOON, written_at=NOON - written)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/5 * * * *", "2026-11-26 11:55"),
        ("17 3 * * *", "2026-11-26 03:17"),
        ("0 12 * * *", "2026-11-25 12:00"),
        ("@daily", "2026-11-26 00:00"),
        ("@quarterly", "2026-10-01 00:00"),
        ("@continuous", "2026-11-26 12:00"),
        ("@once", None),
        (None, None),
    ],
)
def test_last_scheduled_time_is_before_the_moment(schedule: str | None, expected: str | None) -> None:
    found = last_scheduled(schedule, NOON)
    assert (found and f"{found:%Y-%m-%d %H:%M}") == expected


@pytest.mark.parametrize(
    ("schedule", "minutes"),
    [
        ("*/5 * * * *", 5),
        ("*/7 * * * *", 7),
        ("* 9-17 * * 1-5", 63 * 60 + 1),
        ("* * * * * */30", 0.5),
        ("@hourly", 60),
        ("@yearly", 365 * 24 * 60),
        ("0 0 29 2 *", 1461 * 24 * 60),
        ("@continuous", None),
        ("@once", None),
        (None, None),
    ],
)
def test_longest_pause_is_between_two_runs_of_a_week(schedule: str | None, minutes: float | None) -> None:
    assert longest_pause(schedule) == (minutes and timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("schedule", "windows", "reason"),
    [
        ("'@daily'", "{}", "after that nothing is published for up to 1,428.5 minutes"),
        ("'*/30 * * * *'", "{run_for: 5m}", "after that nothing is published for up to 23.5 minutes"),
        ("'@once'", "{}", "has one run, which ends after `windows.run_for: 10m`: nothing is published after it"),
        ("'*/5 * * * *'", "{}", "takes over every 5 minutes, with a new Spark job, so `windows.run_for: 10m` has no"),
        ("'*/10 * * * *'", "{}", None),
        ("'*/7 * * * *'", "{run_for: 6m}", None),
        ("'@continuous'", "{run_for: 10s}", None),
        ("null", "{}", None),
    ],
)
def test_check_warns_of_a_schedule_that_does_not_fit_run_for(schedule: str, windows: str, reason: str | None) -> None:
    found = describe_misfit(pipeline(schedule, f"windows: {windows}\n"))
    assert (reason is None) == (found is None), found
    assert (reason or "") in (found or "")
    assert found is None or 'Set `schedule: "@continuous"`' in found


@pytest.mark.parametrize("schedule", ["'@daily'", "'*/5 * * * *'", "'@once'", "null"])
def test_schedule_without_windows_has_no_misfit(schedule: str) -> None:
    assert describe_misfit(pipeline(schedule)) is None


def test_check_warns_of_the_schedule_continuous_without_windows() -> None:
    found = describe_misfit(pipeline("'@continuous'")) or ""
    assert "without `windows` begins a run, with a new Spark job, as soon as the last one ends" in found
    assert "Set `windows: {every: 1s, run_for: 10m}`" in found


def test_check_warns_of_the_default_schedule_beside_windows() -> None:
    of = parse_pipeline("name: shop\nsource: {connection: m}\nkafka: {connection: k}\nwindows: {}\n", "shop.yaml")
    findings = check(PipelineConnections(of, from_environment), Neighbours({}, from_environment), no_store)
    assert [Level.WARN, describe_misfit(of)] in [[each.level, each.text] for each in findings]


def test_pipeline_is_late_if_a_scheduled_run_published_nothing() -> None:
    text = lateness(behind(lag_minutes=45, committed_minutes_ago=300))
    assert text == (
        "pipeline 'shop' is late: its last commit was at 2026-11-26 07:00:00 UTC, its oldest change that is not "
        "published is 2,700 seconds old, and a run was due at 2026-11-26 11:25:00 UTC"
    )


def test_pipeline_whose_lag_was_not_read_to_its_end_is_late_at_most_so_long() -> None:
    text = lateness(behind(lag_minutes=45, committed_minutes_ago=300, own_changes=None))
    assert "its oldest change that is not published is at most 2,700 seconds old" in str(text)


def test_new_pipeline_whose_file_has_no_time_is_late_when_a_run_was_due() -> None:
    of = pipeline()
    new = Position(Status("shop", "new"), UNKNOWN)
    assert describe_lateness(of, new, SITE.limits_of(of.alerts), now=NOON, written_at=None) == (
        "pipeline 'shop' has no checkpoint: no run has succeeded, and a run was due at 2026-11-26 11:25:00 UTC"
    )


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (behind(lag_minutes=34, committed_minutes_ago=300), "the change came after the run that was due"),
        (behind(lag_minutes=0, committed_minutes_ago=300, own_changes=False), "only tables of others changed"),
        (behind(lag_minutes=300, committed_minutes_ago=20), "it commits: lag_seconds limits its lag"),
        (Position(Status("shop", "current", committed_at_ms=0, lag_bytes=0), Retention(0.0, None, None)), "no change"),
    ],
)
def test_pipeline_is_not_late(position: Position, why: str) -> None:
    assert lateness(position) is None, why


def test_daily_pipeline_is_late_only_after_its_own_schedule() -> None:
    daily = pipeline("'0 3 * * *'")
    assert lateness(behind(lag_minutes=8 * 60, committed_minutes_ago=32 * 60), daily) is None
    assert "is late" in str(lateness(behind(lag_minutes=10 * 60, committed_minutes_ago=32 * 60), daily))


def test_lag_of_unknown_age_counts_by_the_last_commit() -> None:
    assert "of unknown age" in str(lateness(behind(None, committed_minutes_ago=60)))
    assert lateness(behind(None, committed_minutes_ago=10)) is None


def test_pipeline_without_a_schedule_is_late_only_by_its_own_limit() -> None:
    position = behind(lag_minutes=300, committed_minutes_ago=300)
    assert lateness(position, pipeline("null")) is None
    assert "is late" in str(lateness(position, pipeline("null", "alerts: {late_minutes: 60}\n")))
    assert lateness(position, pipeline("null", "alerts: {late_minutes: 400}\n")) is None


def test_pipeline_without_schedule_and_limits_is_not_checked() -> None:
    assert [is_checked(pipeline()), is_checked(pipeline("null"))] == [True, False]
    assert is_checked(pipeline("null", "alerts: {lag_seconds: 60}\n"))


def test_own_limit_counts_before_the_sites() -> None:
    own = pipeline(more="alerts: {late_minutes: 240}\n")
    assert lateness(behind(lag_minutes=120, committed_minutes_ago=300), own) is None
    assert due_time(own, SITE.limits_of(own.alerts), NOON) == NOON - timedelta(minutes=245)
    site = FreshnessSettings(lag_bytes=9, headroom_hours=2.0)
    limits = site.limits_of(pipeline(more="alerts: {lag_bytes: 5}\n").alerts)
    assert (limits.lag_bytes, limits.headroom_hours, limits.late_minutes) == (5, 2.0, 30)


def test_new_pipeline_is_late_if_its_file_is_older_than_a_due_run() -> None:
    new = Position(Status("shop", "new"), UNKNOWN)
    assert lateness(new, written=timedelta(minutes=20)) is None
    assert "'shop' has no checkpoint" in str(lateness(new, written=timedelta(minutes=60)))
    assert lateness(new, pipeline("null")) is None


def test_unreadable_position_is_reported() -> None:
    failed = Position(Status.in_error("shop", SourceUnavailableError("no answer")), UNKNOWN)
    assert lateness(failed) == "pipeline 'shop' cannot be checked: SourceUnavailableError: no answer"
