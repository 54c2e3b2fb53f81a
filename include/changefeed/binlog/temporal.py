"""Dates and times, from their packed fields to ISO 8601 text or to numbers since 1970.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/ (my_time.cc: TIME_from_longlong_*_packed) and
https://dev.mysql.com/doc/internals/en/date-and-time-data-type-representation.html
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.compiled import inline
from changefeed.binlog.memory import Bytes, put8
from changefeed.binlog.numbers import put_number, put_padded

_POWERS = np.array([1000000, 100000, 10000, 1000, 100, 10, 1], np.int64)


@inline
def put_date(out: Bytes, at: int, year: int, month: int, day: int) -> int:
    """Write `YYYY-MM-DD`; ten bytes."""
    at = put_padded(out, at, year, 4)
    put8(out, at, 45)
    at = put_padded(out, at + 1, month, 2)
    put8(out, at, 45)
    return put_padded(out, at + 1, day, 2)


@inline
def put_clock(out: Bytes, at: int, hour: int, minute: int, second: int, micros: int, digits: int) -> int:
    """Write `HH:MM:SS`, hours with more digits where they need them, and ``digits`` of the fraction."""
    at = put_number(out, at, hour) if hour >= 100 else put_padded(out, at, hour, 2)
    put8(out, at, 58)
    at = put_padded(out, at + 1, minute, 2)
    put8(out, at, 58)
    at = put_padded(out, at + 1, second, 2)
    if digits > 0:
        put8(out, at, 46)
        at = put_padded(out, at + 1, micros // _POWERS[digits], digits)
    return at


@inline
def days_since_1970(year: int, month: int, day: int) -> int:
    """Days of the proleptic Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms")."""
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@inline
def put_timestamp(out: Bytes, at: int, seconds: int, micros: int, digits: int, separator: int) -> int:
    """Write seconds since 1970 as date and time in UTC, without a zone."""
    days = seconds // 86400
    clock = seconds - days * 86400
    shifted = days + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    at = put_date(out, at, year, month, day)
    put8(out, at, separator)
    return put_clock(out, at + 1, clock // 3600, clock // 60 % 60, clock % 60, micros, digits)
