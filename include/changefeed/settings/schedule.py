"""Schedules of pipelines: cron expressions and presets, as Airflow accepts them, in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

from croniter import CroniterError, croniter

_CRON = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}
_PRESETS = ("@once", "@continuous", *_CRON)
_FRIDAY_NOON = datetime(2024, 1, 5, 12, tzinfo=UTC)
_MOST_PAUSES = 2000
"""Of a schedule with more runs in a week, so many are compared: each minute until the night of Saturday."""


def check_schedule(text: str | None) -> str | None:
    """Return ``text``; raises ValueError if Airflow does not accept it as a schedule. None is no schedule."""
    if text is None or text in _PRESETS or (not text.startswith("@") and _is_cron(text)):
        return text
    raise ValueError(f"expected a cron expression such as '*/5 * * * *', or one of {', '.join(_PRESETS)}, or null")


def last_scheduled(schedule: str | None, before: datetime) -> datetime | None:
    """The last time before ``before`` at which ``schedule`` starts a run; None if it has no repeated times."""
    if schedule == "@continuous":
        return before
    if schedule is None or schedule == "@once":
        return None
    time: datetime = croniter(_CRON.get(schedule, schedule), before).get_prev(datetime)
    return time


def longest_pause(schedule: str | None) -> timedelta | None:
    """The longest time between the starts of two runs of ``schedule`` in a week; None if it has no repeated times."""
    if schedule in (None, "@once", "@continuous"):
        return None
    longest, starts = timedelta(0), croniter(_CRON.get(schedule, schedule), _FRIDAY_NOON).all_next(datetime)
    for start, following in islice(pairwise(starts), _MOST_PAUSES):
        longest = max(longest, following - start)
        if following - _FRIDAY_NOON > timedelta(weeks=1):
            break
    return longest


def _is_cron(text: str) -> bool:
    """Whether Airflow accepts ``text`` as a schedule: no years, nothing random, and at least one future time."""
    if not croniter.is_valid(text) or len(text.split()) > 6 or re.search(r"\b[rh](\b|\()", text, re.IGNORECASE):
        return False
    try:
        croniter(text).get_next()
    except CroniterError:
        return False
    return True
