"""Rename columns, also in the key."""

from __future__ import annotations

from collections.abc import Mapping

from changefeed.transforms.change import Change, Row


def transform(change: Change, columns: Mapping[str, str]) -> Change:
    """``change`` with columns renamed by ``columns``, old names to new names; the order of columns stays.

    Raises ValueError if another column has the new name.
    """

    def rename_columns(row: Row | None) -> Row | None:
        if row is None:
            return None
        new = {columns.get(name, name): value for name, value in row.items()}
        if len(new) != len(row):
            raise ValueError(
                f"two columns would have one name: expected different ones, {dict(columns)} of {list(row)}"
            )
        return new

    return change.replace(
        before=rename_columns(change.before),
        after=rename_columns(change.after),
        key=tuple(columns.get(name, name) for name in change.key),
    )
