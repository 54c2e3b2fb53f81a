"""Converts dates and times in conditions to the bytes of row images. The order of the bytes is the order of time.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html and mysys/my_time.cc of the server, whose
formats are those since MySQL 5.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime

from changefeed.model import column_types
from changefeed.model.column_types import WireType

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_DATETIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
_TIME = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")
_LARGEST_TIME = (838 << 12 | 59 << 6 | 59) * 1_000_000
_LATEST_SECOND = 2**32 - 1


def date_word(text: str) -> int:
    """A DATE as a number: day in five bits, month in four bits, year. Raises ValueError for a text that is no date."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("a date in quotes, as '2026-01-31'")
    try:
        day = date(*map(int, match.groups()))
    except ValueError:
        raise ValueError("an existing date") from None
    return day.year << 9 | day.month << 5 | day.day


def datetime_bytes(text: str, digits: int) -> bytes:
    """A DATETIME with ``digits`` digits of a fraction; raises ValueError for a text that is no date and time."""
    moment = _moment(text)
    packed = (moment.year * 13 + moment.month) << 5 | moment.day
    packed = packed << 17 | moment.hour << 12 | moment.minute << 6 | moment.second
    return (packed + (1 << 39)).to_bytes(5, "big") + _fraction(moment.microsecond, digits)


def timestamp_bytes(text: str, digits: int) -> bytes:
    """A TIMESTAMP of the UTC time ``text``; raises ValueError as `datetime_bytes`, and outside a TIMESTAMP's range."""
    moment = _moment(text)
    seconds = int(moment.timestamp())
    if not 0 < seconds <= _LATEST_SECOND:
        raise ValueError("a moment from 1970-01-01 00:00:01 to 2106-02-07 06:28:15, in UTC")
    return seconds.to_bytes(4, "big") + _fraction(moment.microsecond, digits)


def time_bytes(text: str, digits: int) -> bytes:
    """A TIME with ``digits`` digits of a fraction; raises ValueError for a text that is no time."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("a time in quotes, as '12:30:45', with three digits of hours at most")
    hours, minutes, seconds = (int(match[number]) for number in (2, 3, 4))
    packed, micros = hours << 12 | minutes << 6 | seconds, _micros(match[5])
    if packed * 1_000_000 + micros > _LARGEST_TIME:
        raise ValueError("a time up to 838:59:59")
    fraction = _fraction(micros, digits)
    number = packed << 8 * len(fraction) | int.from_bytes(fraction, "big")
    zero = 1 << 23 + 8 * len(fraction)
    return (zero - number if match[1] else zero + number).to_bytes(3 + len(fraction), "big")


BYTES: Mapping[WireType, Callable[[str, int], bytes]] = {
    column_types.DATETIME2: datetime_bytes,
    column_types.TIMESTAMP2: timestamp_bytes,
    column_types.TIME2: time_bytes,
}
"""For each type of column, a function that converts a text to bytes; its second argument is the column's digits."""


def _moment(text: str) -> datetime:
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise ValueError("a date and time in quotes, as '2026-01-31 12:30:45'")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        return datetime(year, month, day, hour, minute, second, _micros(match[7]), UTC)
    except ValueError:
        raise ValueError("an existing date and time") from None


def _micros(digits: str | None) -> int:
    return int((digits or "").ljust(6, "0"))


def _fraction(micros: int, digits: int) -> bytes:
    """The fraction in bytes that have two digits each, as many as a column with ``digits`` digits has."""
    if micros % 10 ** (6 - digits):
        raise ValueError(f"at most {digits} digits of a second's fraction, as many as the column has")
    size = (digits + 1) // 2
    return int(micros // 10 ** (6 - 2 * size)).to_bytes(size, "big")
