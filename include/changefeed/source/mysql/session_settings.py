"""What each session sets, so that a query returns the same whatever the server's settings make of other clients.

A server's global values, its `init_connect` and its option files decide what a new session begins with; some of them
change silently what a SELECT returns. Sources: https://dev.mysql.com/doc/refman/en/server-system-variables.html and
https://mariadb.com/docs/server/server-management/variables-and-modes/server-system-variables
"""

from __future__ import annotations

_NO_LIMIT = "18446744073709551615"

EVERYWHERE = {
    "autocommit": "1",  # without it all SELECTs of a session are of one snapshot
    "completion_type": "NO_CHAIN",  # COMMIT would begin another transaction, or end the session
    "sql_mode": "''",  # how text and operators are read, CHAR is padded and definitions are printed
    "time_zone": "'+00:00'",  # TIMESTAMP, also as a column's default
    "sql_select_limit": _NO_LIMIT,  # rows behind it are left out without a word
    "max_join_size": _NO_LIMIT,  # long SELECTs are refused
    "sql_big_selects": "1",  # likewise
    "sql_auto_is_null": "0",  # `WHERE id IS NULL` finds the last row inserted
    "sql_quote_show_create": "1",  # names in SHOW CREATE TABLE that only quotes make readable
    "max_sort_length": "1024",  # text is sorted by so many bytes
    "net_write_timeout": "3600",  # a reader that waits for Kafka is cut off
    "wait_timeout": "28800",  # a session that waits for the next chunk is ended
}
"""Each value by its variable; the comments say what others do."""

MYSQL = {
    50708: {"max_execution_time": "0"},  # long SELECTs are ended
    50722: {"show_create_table_verbosity": "0"},  # SHOW CREATE TABLE has a row format that no statement named
    80030: {"show_gipk_in_create_table_and_information_schema": "1"},  # hides a column that is in the binlog
}
"""Of MySQL, by the version that they came with."""

MARIADB = {
    100101: {"max_statement_time": "0"},
    100304: {"system_versioning_asof": "DEFAULT"},  # rows as they were at another time
}
"""Of MariaDB, likewise."""


def session_statement() -> str:
    """The one SET statement; comments that only servers of a version read keep it good for all of them."""
    settings = ", ".join(_assignment(name, value) for name, value in EVERYWHERE.items())
    versions = [f"/*!{version} {_more(more)} */" for version, more in MYSQL.items()]
    versions += [f"/*M!{version} {_more(more)} */" for version, more in MARIADB.items()]
    return f"SET {settings} {' '.join(versions)}"


def _more(settings: dict[str, str]) -> str:
    return "".join(f", {_assignment(name, value)}" for name, value in settings.items())


def _assignment(name: str, value: str) -> str:
    return f"{name} = {value}"
