"""Definitions that the server wrote itself, in place of a client's: CREATE TABLE … SELECT, LIKE of a temporary table,
and tables that it gives a key of its own.

They are in UTF-8 and with backslash escapes, whatever charset and sql_mode their event says: those are the client's.
Seen on MySQL 9.7 and MariaDB 11.4; `store_create_info` in sql/sql_show.cc of both lays them out as SHOW CREATE TABLE.
"""

from __future__ import annotations

import re

_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\")"
_BEGIN = re.compile(rf"CREATE (?:OR REPLACE )?TABLE (?:IF NOT EXISTS )?{_NAME}(?:\.{_NAME})? \(\n  [`\"A-Z]")


def is_server_text(sql: str) -> bool:
    """Whether ``sql`` is laid out as the server does it. A dump that a client read in again looks the same."""
    return sql.startswith("CREATE ") and _BEGIN.match(sql) is not None


def server_text(sql: bytes) -> str | None:
    """``sql`` if the server wrote it; None where it is laid out otherwise, or is no UTF-8, as some dumps are."""
    if not sql.startswith(b"CREATE "):
        return None
    try:
        text = sql.decode()
    except UnicodeDecodeError:
        return None
    return text if is_server_text(text) else None
