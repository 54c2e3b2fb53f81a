"""The session that ran a statement, as records of it say: what whoever runs it again has to set before.

Each value is what `SET` takes. Names are MySQL's variables; what an event does not say is not there.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Query__event.html
("Status variables", "flags2"); MariaDB's `log_event.h` for 128 and above.
"""

from __future__ import annotations

from collections.abc import Mapping

from changefeed.status_variables import StatusVariable, status_variables

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
    """The session that a QUERY event's status ``variables``, in hexadecimal, describe; ``ts_seconds`` is its time.

    `sql_mode` and collations are numbers, as the server numbers them; `timestamp` is the time as text, with a fraction
    where the event has one. Raises ValueError for variables that are cut short.
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
