"""The settings of each session, so that the result of a query does not depend on the settings of the server.

The server's global values, its `init_connect` and its option files set the defaults of a new session. Some of these
settings silently change the result of a SELECT.

Sources: https://dev.mysql.com/doc/refman/en/server-system-variables.html and
https://mariadb.com/docs/server/server-management/variables-and-modes/server-system-variables
"""

from __future__ import annotations

_NO_LIMIT = "18446744073709551615"

EVERYWHERE = {
    "autocommit": "1",  # without it all SELECTs of a session are of one snapshot
    "completion_type": "NO_CHAIN",  # COMMIT would begin another transaction, or end the session
    "sql_mode": "''",  # other parsing of text and operators, padding of CHAR, format of SHOW CREATE
    "time_zone": "'+00:00'",  # TIMESTAMP, also as a column's default
    "sql_select_limit": _NO_LIMIT,  # a SELECT silently omits rows beyond the limit
    "max_join_size": _NO_LIMIT,  # long SELECTs are refused
    "sql_big_selects": "1",  # long SELECTs are refused
    "sql_auto_is_null": "0",  # `WHERE id IS NULL` finds the last row inserted
    "sql_quote_show_create": "1",  # SHOW CREATE TABLE has names without quotes, which may not be parseable
    "max_sort_length": "1024",  # the number of bytes by which text is sorted
    "net_write_timeout": "3600",  # the server disconnects a reader that waits for Kafka
    "wait_timeout": "28800",  # the server ends a session that waits for the next chunk
}
"""The values by variable. The comments describe the effect of other values, or what the variable affects."""

MYSQL = {
    50708: {"max_execution_time": "0"},  # the server ends long SELECTs
    50722: {"show_create_table_verbosity": "0"},  # SHOW CREATE TABLE has a row format that no statement named
    80030: {"show_gipk_in_create_table_and_information_schema": "1"},  # hides a column that is in the binlog
}
"""Settings of MySQL, by the first version that has them."""

MARIADB = {
    100101: {"max_statement_time": "0"},
    100304: {"system_versioning_asof": "DEFAULT"},  # a SELECT returns the rows of another time
}
"""Settings of MariaDB, by the first version that has them."""


def session_statement() -> str:
    """One SET statement for all servers. Versioned comments limit settings to the versions that have them."""
    settings = ", ".join(_assignment(name, value) for name, value in EVERYWHERE.items())
    versions = [f"/*!{version} {_more(more)} */" for version, more in MYSQL.items()]
    versions += [f"/*M!{version} {_more(more)} */" for version, more in MARIADB.items()]
    return f"SET {settings} {' '.join(versions)}"


def _more(settings: dict[str, str]) -> str:
    return "".join(f", {_assignment(name, value)}" for name, value in settings.items())


def _assignment(name: str, value: str) -> str:
    return f"{name} = {value}"
