"""Replace a JSON column by columns with its members."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from changefeed.transforms.change import Change


def transform(change: Change, column: str, separator: str = "_", depth: int = 8) -> Change:
    """``change`` with ``column`` replaced by columns COLUMN_MEMBER, one for each member of its JSON object.

    Nested objects are flattened up to ``depth`` levels; arrays and deeper objects are not changed. NULL, or a document
    that is not an object, stays in its column. Raises ValueError if a column with such a name exists already.
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
