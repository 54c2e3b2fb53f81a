"""The function of the example: tags each change, and masks long text."""

from __future__ import annotations

from changefeed.transforms.change import Change

from .helpers import obfuscate


def transform(change: Change) -> Change | None:
    """``change`` with `ext`, and its rows with `changed` and a masked `text_col`; None, which drops it, for a test
    row."""
    if change.row["text_col"] == "test":
        return None
    change.ext = 1
    for row in change.rows:
        row["changed"] = 1
        if len(row["text_col"] or "") > 3:
            row["text_col"] = obfuscate(row["text_col"])
    return change
