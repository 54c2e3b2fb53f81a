"""Ranges of a table's primary key: how a table is cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass

Boundary = tuple[str, ...]
"""The key of a row, a text for each of its columns, as `source.mysql.table_key.TableKey.next_boundary` reads it."""


@dataclass(frozen=True)
class KeyRange:
    """The rows whose key is behind ``after`` and not behind ``upto``; None where the range has no such end."""

    after: Boundary | None = None
    upto: Boundary | None = None


ALL_ROWS = KeyRange()
"""The range without ends."""
