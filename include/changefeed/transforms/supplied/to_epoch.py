"""Write dates and times as numbers since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from changefeed.transforms.change import Change

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"days": timedelta(days=1), "seconds": timedelta(seconds=1), "milliseconds": timedelta(milliseconds=1),
          "microseconds": timedelta(microseconds=1)}  # fmt: skip


def transform(
    change: Change,
    columns: Sequence[str],
    unit: Literal["days", "seconds", "milliseconds", "microseconds"] = "milliseconds",
) -> Change:
    """``change`` with DATE, DATETIME and TIMESTAMP ``columns``, ISO 8601 text, as integers of ``unit`` since 1970.

    DATETIME has no time zone and is read as UTC. Zero and partial dates become None, because such days do not exist.
    Raises KeyError for another unit, ValueError for text that is not a date.
    """
    size = _UNITS[unit]
    for row in change.rows:
        for column in columns:
            if row.get(column) is not None:
                row[column] = _since_1970(row[column], size)
    return change


def _since_1970(text: str, size: timedelta) -> int | None:
    if text.startswith("0000") or "-00" in text[:10]:
        return None
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // size
