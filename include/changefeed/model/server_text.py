"""DDL statements that the server writes to the binlog in its own text.

The server does so for CREATE TABLE … SELECT, for LIKE of a temporary table, and for tables that get a generated key.
This text is UTF-8 with backslash escapes, whereas charset and sql_mode of its event are the client's.

Observed on MySQL 9.7 and MariaDB 11.4. On both, `store_create_info` in sql/sql_show.cc writes the text in the layout of
SHOW CREATE TABLE.
"""

from __future__ import annotations

import re

_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\")"
_BEGIN = re.compile(rf"CREATE (?:OR REPLACE )?TABLE (?:IF NOT EXISTS )?{_NAME}(?:\.{_NAME})? \(\n  [`\"A-Z]")


def is_server_text(sql: str) -> bool:
    """Whether ``sql`` has the layout of the server. A dump that a client executes looks the same."""
    return sql.startswith("CREATE ") and _BEGIN.match(sql) is not None


def server_text(sql: bytes) -> str | None:
    """The text of ``sql`` if it has the layout of the server; None for another layout, and for invalid UTF-8."""
    if not sql.startswith(b"CREATE "):
        return None
    try:
        text = sql.decode()
    except UnicodeDecodeError:
        return None
    return text if is_server_text(text) else None
