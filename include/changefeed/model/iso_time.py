"""Times as ISO 8601 texts, and as whole Unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from changefeed.errors import SettingsError


def utc_text(seconds: int) -> str:
    """A Unix time as text, as in 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> int:
    """The Unix time of an ISO 8601 time. A time without an offset is UTC. Raises SettingsError for other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{text!r} is no time: expected ISO 8601, as in 2026-01-31T12:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def is_time(text: str) -> bool:
    """Whether `seconds_of` can read ``text``."""
    try:
        seconds_of(text)
    except SettingsError:
        return False
    return True
