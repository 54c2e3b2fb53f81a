"""Leave columns out, also those that hold what another function has read."""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.transforms.change import Change


def transform(change: Change, columns: Sequence[str]) -> Change:
    """``change`` without ``columns``; columns that it does not have are no mistake."""
    for row in change.rows:
        for column in columns:
            row.pop(column, None)
    return change
