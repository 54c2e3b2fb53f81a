"""When a continuous run begins its next window, tries again after an error, and ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from changefeed.errors import (
    FencedError,
    NotPublishedError,
    PipelineBusyError,
    RetryableError,
    SourceUnavailableError,
    SparkFailedError,
    SparkUnavailableError,
)
from changefeed.ingest.pace import (
    LAST_PLAN_SECONDS,
    LONG_FAILING_SECONDS,
    MOST_FAILING_SECONDS,
    MOST_PAUSE_SECONDS,
    PLAN_SECONDS,
    Pace,
    ReplacedWindowError,
)

ERROR = SourceUnavailableError("the server is away")


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds

    def seconds_of(self, call: Callable[[], object]) -> float:
        """The time that ``call`` takes."""
        began = self.now
        call()
        return self.now - began


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "sleep", found.sleep)
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    return found


def test_windows_begin_at_least_so_far_apart(clock: Clock) -> None:
    pace = Pace(1.0, 60.0)
    pace.begin()
    clock.now += 0.25  # the first window is short
    pace.begin()
    clock.now += 5  # the second one is longer than the pause
    pace.begin()
    assert clock.slept == [0.75]


def test_a_run_is_over_after_its_time_also_while_it_waits(clock: Clock) -> None:
    pace = Pace(600.0, 10.0)
    pace.begin()
    assert not pace.is_over
    assert not pace.begin(), "no window begins at the end"
    assert sum(clock.slept) == 10.0
    assert pace.is_over


def test_a_pause_is_as_long_as_the_settings_say_at_its_end(clock: Clock) -> None:
    pace = Pace(600.0, 60.0)
    pace.begin()

    def shorten() -> None:
        if clock.now >= 1005:
            pace.change(every_seconds=7.0, run_seconds=20.0)

    assert pace.begin(shorten)
    assert clock.now == 1007
    assert pace.left_seconds == 13, "of the run's begin"
    pace.end()
    assert pace.is_over
    assert not pace.begin()


def test_pauses_after_errors_double_up_to_a_limit_and_begin_anew_after_a_success(clock: Clock) -> None:
    pace = Pace(0.0, 3600.0)
    pauses = [clock.seconds_of(lambda: pace.fail(ERROR)) for _ in range(7)]
    assert pauses == [1, 2, 4, 8, 16, MOST_PAUSE_SECONDS, MOST_PAUSE_SECONDS]
    pace.succeed()
    assert clock.seconds_of(lambda: pace.fail(ERROR)) == 1


def test_changes_that_are_left_do_not_wait_for_the_next_window(clock: Clock) -> None:
    pace = Pace(600.0, 3600.0)
    pace.begin()
    pace.skip_pause()
    assert pace.begin()
    assert clock.slept == []


def test_an_error_ends_the_run_if_no_time_is_left_for_another_attempt(clock: Clock) -> None:
    pace = Pace(0.0, 5.0)
    pace.fail(ERROR)
    pace.fail(ERROR)
    with pytest.raises(SourceUnavailableError, match="the server is away"):
        pace.fail(ERROR)
    assert clock.now == 1003


def test_errors_in_sequence_end_a_run_after_some_minutes_however_long_it_is(clock: Clock) -> None:
    pace, began = Pace(0.0, 3600.0), clock.now
    for _ in range(13):
        pace.fail(ERROR)
    with pytest.raises(SourceUnavailableError, match="the server is away"):
        pace.fail(ERROR)
    assert MOST_FAILING_SECONDS - MOST_PAUSE_SECONDS <= clock.now - began <= MOST_FAILING_SECONDS


@pytest.mark.parametrize("error", [SparkFailedError("no executor"), SparkUnavailableError("no server")])
def test_an_error_that_another_process_may_not_have_ends_a_run_at_once(clock: Clock, error: RetryableError) -> None:
    with pytest.raises(type(error)):
        Pace(0.0, 3600.0).fail(error)
    assert clock.slept == []


def test_a_transaction_that_the_brokers_aborted_does_not_end_a_run(clock: Clock) -> None:
    Pace(0.0, 3600.0).fail(FencedError("the transaction outlived its timeout"))
    assert clock.slept == [1.0]


def test_a_busy_pipeline_is_no_failure_of_the_run(clock: Clock) -> None:
    pace = Pace(0.0, 600.0)
    pauses = set()
    while not pace.is_over:
        pauses.add(clock.seconds_of(lambda: pace.fail(PipelineBusyError("another run"))))
    assert clock.now == 1600.0
    assert max(pauses) == 2, "it goes on soon after a long operation"


def test_a_run_that_is_asked_to_end_waits_for_nothing(clock: Clock) -> None:
    pace = Pace(600.0, 3600.0, 90.0, lambda: clock.now >= 1010)
    assert pace.begin()
    assert not pace.begin()
    assert (clock.now, pace.left_seconds) == (1010, 0)


def test_a_run_that_is_asked_to_end_while_another_one_blocks_it_has_not_failed(clock: Clock) -> None:
    pace = Pace(0.0, 3600.0, 0.0, lambda: clock.now >= 1001)
    while not pace.is_over:
        pace.fail(PipelineBusyError("another run"))
    pace.check_end()


def test_a_run_that_is_asked_to_end_while_it_fails_has_failed(clock: Clock) -> None:
    pace = Pace(0.0, 3600.0, 0.0, lambda: clock.now >= 1005)
    while not pace.is_over:
        pace.fail(ERROR)
    assert clock.now == 1005
    with pytest.raises(SourceUnavailableError, match="the server is away"):
        pace.check_end()


@pytest.mark.parametrize("error", [PipelineBusyError("another run"), ReplacedWindowError("another server"), ERROR])
@pytest.mark.usefixtures("clock")
def test_a_run_that_never_succeeded_ends_with_its_error(error: RetryableError) -> None:
    pace = Pace(0.0, 10.0)
    pace.fail(error)
    pace.end()
    with pytest.raises(type(error), match=str(error)):
        pace.check_end()


def test_a_run_that_another_one_blocks_at_its_end_is_no_success_if_that_took_minutes(clock: Clock) -> None:
    pace = Pace(0.0, 3600.0)
    pace.succeed()
    pace.fail(PipelineBusyError("another run"))
    pace.check_end()
    clock.now += MOST_FAILING_SECONDS
    pace.fail(PipelineBusyError("another run"))
    with pytest.raises(PipelineBusyError, match="another run"):
        pace.check_end()
    pace.succeed()
    pace.check_end()


def test_a_run_that_fails_until_another_one_takes_over_is_no_success(clock: Clock) -> None:
    pace = Pace(0.0, 3600.0)
    pace.succeed()
    pace.fail(ERROR)
    pace.check_handed_over()
    clock.now += LONG_FAILING_SECONDS
    with pytest.raises(NotPublishedError, match=r"failed for 121 seconds\..* The last error: the server is away"):
        pace.check_handed_over()
    pace.succeed()
    pace.check_handed_over()


def test_a_run_that_waits_until_another_one_takes_over_has_not_failed(clock: Clock) -> None:
    pace = Pace(0.0, 3600.0)
    while clock.now < 1000 + 2 * LONG_FAILING_SECONDS:
        pace.fail(PipelineBusyError("another run"))
    pace.check_handed_over()


def test_the_time_of_another_run_is_no_time_of_failures(clock: Clock) -> None:
    pace = Pace(0.0, 3600.0)
    while clock.now < 1000 + 2 * MOST_FAILING_SECONDS:
        pace.fail(PipelineBusyError("another run"))
    pace.fail(ERROR)


def test_a_run_waits_for_the_next_one_after_its_time_and_looks_for_it_often(clock: Clock) -> None:
    pace = Pace(0.0, 600.0, wait_seconds=90.0)
    assert pace.idle_seconds == PLAN_SECONDS
    clock.now += 590
    assert pace.idle_seconds == 10
    clock.now += 20
    assert (pace.idle_seconds, pace.begin()) == (LAST_PLAN_SECONDS, True)
    clock.now += 80
    assert not pace.begin(), "no other run has taken over"
