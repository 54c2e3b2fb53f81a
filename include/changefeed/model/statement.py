"""A statement of the binlog, and the session variables to set before it is executed again.

Each value is valid in `SET`. Names are MySQL's variables; variables that the event does not have are missing.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
("Status variables", "flags2"); MariaDB's `log_event.h` for 128 and above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

_THREAD_SPECIFIC_FLAG = 4
"""A flag in the header of a QUERY event."""


@dataclass(frozen=True)
class Statement:
    """A QUERY event that is not BEGIN, COMMIT or a savepoint: DDL, or a change in statement format.

    ``variables`` are the event's status variables in hexadecimal: sql_mode, charsets and the like of its session.
    ``size_bytes`` and ``flags`` are the event header's.
    """

    file: str
    position: int
    ts_seconds: int
    gtid: str
    database: str
    sql: str
    variables: str = ""
    server_id: int = 0
    size_bytes: int = 0
    flags: int = 0
    error_code: int = 0
    """The error code of a statement that failed after it changed some rows; 0 if it did not fail."""
    commit_micros: int = 0
    """Commit time in microseconds since 1970; 0 if not known."""
    inputs: str = ""
    """The statement's inputs from the session, in the form of `statement_inputs.inputs_text`."""
    doubt: str = ""
    """Why the statement may have changed something else than its text says; '' if it did not, or was not checked."""

    @property
    def is_thread_specific(self) -> bool:
        """Whether it uses objects of its session, such as a temporary table."""
        return bool(self.flags & _THREAD_SPECIFIC_FLAG)

    @property
    def micros(self) -> int:
        """Commit time; the event's second if not known."""
        return self.commit_micros or self.ts_seconds * 1_000_000


class StatusVariable(IntEnum):
    """Codes of the variables that changefeed reads; their values are little-endian."""

    FLAGS2 = 0
    """u32: session options, `OPTION_...` of the server's sources."""
    SQL_MODE = 1
    """u64"""
    AUTO_INCREMENT = 3
    """auto_increment_increment, auto_increment_offset: each u16"""
    CHARSET = 4
    """character_set_client, collation_connection, collation_server: each u16, the id of a collation."""
    TIME_ZONE = 5
    """The name of the session's time zone, if the statement depends on it."""
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
    ALTER_PHASE = 130
    """u8: flags of MariaDB's GTID event. If they say that an ALTER ended, u64: the number of that ALTER."""
    CHARACTER_SET_COLLATIONS = 131
    """MariaDB 11.2+: pairs of u16, the ids of a charset and of its default collation."""


_CODES_BY_SIZE = {
    1: (16, 19, 20),
    2: (7, 8, 18),
    3: (13, 128),
    4: (0, 3, 10),
    6: (4,),
    8: (1, 9, 14, 15, 17, 129),
}
_SIZES = {code: size for size, codes in _CODES_BY_SIZE.items() for code in codes}
_TOO_MANY_DATABASES = 254
"""If the statement touches more databases, the event has this count and no names."""
_STARTS_ALTER, _COMMITS_ALTER, _ROLLS_ALTER_BACK = 2, 4, 8
"""Flags of ALTER_PHASE, `FL_..._ALTER_E1` of the server's sources."""


def status_variables(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (code, value) of each status variable, in the order of the event.

    Stops at an unknown code, because the size of its value is not known. Values do not include the counts and lengths
    before them. Raises ValueError for a variable that is cut off.
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
            case StatusVariable.ALTER_PHASE:
                at = start + (9 if _byte(data, start) & (_COMMITS_ALTER | _ROLLS_ALTER_BACK) else 1)
            case 12:  # databases that the statement touches: a count, and names that end in 0
                count, at = _byte(data, start), start + 1
                for _ in range(count if count < _TOO_MANY_DATABASES else 0):
                    at = data.index(0, at) + 1
            case _:
                return
        if at > len(data):
            raise ValueError(f"status variable {code} ends at {at} of {len(data)} bytes")
        yield code, data[start:at]


def takes_effect(variables: bytes) -> bool:
    """Whether the statement of a QUERY event with these status ``variables`` takes effect at this event.

    False for the start or rollback of a MariaDB ALTER (binlog_alter_two_phase). If the ALTER completes, a later event
    has the same text. Raises ValueError for variables that are cut off.
    """
    flags = dict(status_variables(variables)).get(StatusVariable.ALTER_PHASE, b"\0")[0]
    return not flags & (_STARTS_ALTER | _ROLLS_ALTER_BACK)


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ValueError(f"the status variables end before byte {at}")
    return data[at]


SessionValue = int | str | bool | list[list[int]]

_AUTO_IS_NULL = 1 << 14
_NO_FOREIGN_KEY_CHECKS = 1 << 26
_RELAXED_UNIQUE_CHECKS = 1 << 27
_NUMBERS = {
    StatusVariable.SQL_MODE: "sql_mode",
    StatusVariable.LC_TIME_NAMES: "lc_time_names",
    StatusVariable.CHARSET_DATABASE: "collation_database",
    StatusVariable.DEFAULT_COLLATION_FOR_UTF8MB4: "default_collation_for_utf8mb4",
}
_FLAGS = {
    StatusVariable.EXPLICIT_DEFAULTS_FOR_TIMESTAMP: "explicit_defaults_for_timestamp",
    StatusVariable.SQL_REQUIRE_PRIMARY_KEY: "sql_require_primary_key",
    StatusVariable.DEFAULT_TABLE_ENCRYPTION: "default_table_encryption",
}


def session_of(ts_seconds: int, variables: str) -> dict[str, SessionValue]:
    """The session variables of a QUERY event at ``ts_seconds``, from its status ``variables`` in hexadecimal.

    `sql_mode` and collations are the server's numbers. `timestamp` is the time as text, with a fraction if the event
    has one. Raises ValueError for variables that are cut off.
    """
    values = dict(status_variables(bytes.fromhex(variables)))
    session: dict[str, SessionValue] = {"timestamp": _timestamp(ts_seconds, values)}
    session |= {name: _number(values[code]) for code, name in _NUMBERS.items() if code in values}
    if (charsets := values.get(StatusVariable.CHARSET)) is not None:
        names = ("character_set_client", "collation_connection", "collation_server")
        session |= {name: _number(charsets[at : at + 2]) for name, at in zip(names, (0, 2, 4), strict=True)}
    if (flags := values.get(StatusVariable.FLAGS2)) is not None:
        session["foreign_key_checks"] = not _number(flags) & _NO_FOREIGN_KEY_CHECKS
        session["unique_checks"] = not _number(flags) & _RELAXED_UNIQUE_CHECKS
        if _number(flags) & _AUTO_IS_NULL:
            session["sql_auto_is_null"] = True
    if (zone := values.get(StatusVariable.TIME_ZONE)) is not None:
        session["time_zone"] = zone.decode("utf-8", "replace")
    if (steps := values.get(StatusVariable.AUTO_INCREMENT)) is not None:
        session["auto_increment_increment"], session["auto_increment_offset"] = _number(steps[:2]), _number(steps[2:])
    session |= {name: bool(_number(values[code])) for code, name in _FLAGS.items() if code in values}
    if (pairs := values.get(StatusVariable.CHARACTER_SET_COLLATIONS)) is not None:
        session["character_set_collations"] = [
            [_number(pairs[at : at + 2]), _number(pairs[at + 2 : at + 4])] for at in range(0, len(pairs), 4)
        ]
    return session


def _timestamp(ts_seconds: int, values: Mapping[int, bytes]) -> str:
    micros = values.get(StatusVariable.MICROSECONDS) or values.get(StatusVariable.MARIADB_MICROSECONDS)
    return f"{ts_seconds}.{_number(micros):06d}" if micros else str(ts_seconds)


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")
