"""Names of databases, tables and columns in SQL."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """``name`` as an identifier in SQL, in backquotes."""
    return "`" + name.replace("`", "``") + "`"
