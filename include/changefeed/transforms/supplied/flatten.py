"""Make columns of what is in a JSON column."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from changefeed.transforms.change import Change


def transform(change: Change, column: str, separator: str = "_", depth: int = 8) -> Change:
    """``change`` with the members of the object in ``column`` as columns COLUMN_MEMBER in its stead.

    Objects inside it are flattened ``depth`` deep, arrays and what is deeper stay as they are. A document that is no
    object, or NULL, stays in its column. Raises ValueError where a column of such a name is there already.
    """
    for row in change.rows:
        value = row.get(column)
        document = json.loads(value) if isinstance(value, str) else value
        if not isinstance(document, dict):
            continue
        del row[column]
        for name, member in _members(document, column, separator, depth):
            if name in row:
                raise ValueError(
                    f"{name!r} of the document in {column!r} is a column already: choose another separator"
                )
            row[name] = member
    return change


def _members(document: dict[str, Any], prefix: str, separator: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        path = f"{prefix}{separator}{name}"
        if isinstance(value, dict) and depth > 1:
            yield from _members(value, path, separator, depth - 1)
        else:
            yield path, value
