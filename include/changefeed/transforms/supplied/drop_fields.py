"""Leave columns out, also columns that an earlier function has read."""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.transforms.change import Change


def transform(change: Change, columns: Sequence[str]) -> Change:
    """``change`` without ``columns``; missing columns are ignored."""
    for row in change.rows:
        for column in columns:
            row.pop(column, None)
    return change
