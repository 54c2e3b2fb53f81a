"""Status variables of QUERY events: the settings of the session that ran a statement.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
("Status variables"); MariaDB's `log_event.h` for 128 and above.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum


class StatusVariable(IntEnum):
    """Codes of the variables that somebody here reads; their values are little-endian."""

    FLAGS2 = 0
    """u32: session options, `OPTION_...` of the server's sources."""
    SQL_MODE = 1
    """u64"""
    AUTO_INCREMENT = 3
    """auto_increment_increment, auto_increment_offset: each u16"""
    CHARSET = 4
    """character_set_client, collation_connection, collation_server: each u16, the id of a collation."""
    TIME_ZONE = 5
    """Its name, where the statement depends on it."""
    LC_TIME_NAMES = 7
    """u16"""
    CHARSET_DATABASE = 8
    """collation_database: u16, the id of a collation"""
    MICROSECONDS = 13
    """u24: the fraction of the event's time."""
    EXPLICIT_DEFAULTS_FOR_TIMESTAMP = 16
    """u8, MySQL 8.0+"""
    DEFAULT_COLLATION_FOR_UTF8MB4 = 18
    """u16, the id of a collation"""
    SQL_REQUIRE_PRIMARY_KEY = 19
    """u8"""
    DEFAULT_TABLE_ENCRYPTION = 20
    """u8"""
    MARIADB_MICROSECONDS = 128
    """u24: the fraction of the event's time."""
    CHARACTER_SET_COLLATIONS = 131
    """MariaDB 11.2+: pairs of u16, the ids of a charset and of its default collation."""


_CODES_BY_SIZE = {
    1: (16, 19, 20, 130),
    2: (7, 8, 18),
    3: (13, 128),
    4: (0, 3, 10),
    6: (4,),
    8: (1, 9, 14, 15, 17, 129),
}
_SIZES = {code: size for size, codes in _CODES_BY_SIZE.items() for code in codes}
_TOO_MANY_DATABASES = 254
"""The count that stands there instead of names."""


def status_variables(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (code, value) in the order of the event, up to a code that is not known: its size is not known either.

    Counts and lengths before a value are left out of it. Raises ValueError for a variable that the end cuts off.
    """
    at = 0
    while at < len(data):
        code = data[at]
        start = at + 1
        match code:
            case _ if code in _SIZES:
                at = start + _SIZES[code]
            case 5 | 6:  # time zone, catalog: a length, and the name
                start, at = start + 1, start + 1 + _byte(data, start)
            case 131:
                start, at = start + 1, start + 1 + 4 * _byte(data, start)
            case 2:  # the catalog as servers before 5.0.4 wrote it: a length, the name, and 0
                at = start + 2 + _byte(data, start)
            case 11:  # invoker: lengths and names of user and host
                at = start + 1 + _byte(data, start)
                at += 1 + _byte(data, at)
            case 12:  # databases that the statement touches: a count, and names that end in 0
                count, at = _byte(data, start), start + 1
                for _ in range(count if count < _TOO_MANY_DATABASES else 0):
                    at = data.index(0, at) + 1
            case _:
                return
        if at > len(data):
            raise ValueError(f"status variable {code} ends at {at} of {len(data)} bytes")
        yield code, data[start:at]


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ValueError(f"the status variables end before byte {at}")
    return data[at]
