"""Names of databases, tables and columns in SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """An identifier as SQL has it."""
    return "`" + name.replace("`", "``") + "`"
