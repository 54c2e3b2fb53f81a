"""Ranges of a table's primary key: the rows of a chunk."""

from __future__ import annotations

from dataclasses import dataclass

Boundary = tuple[str, ...]
"""The key of a row, a text for each of its columns, as `source.mysql.table_key.TableKey.next_boundary` reads it."""


@dataclass(frozen=True)
class KeyRange:
    """The rows with a key greater than ``after`` and at most ``upto``. None means that the range has no limit there."""

    after: Boundary | None = None
    upto: Boundary | None = None


ALL_ROWS = KeyRange()
"""The range without ends."""
