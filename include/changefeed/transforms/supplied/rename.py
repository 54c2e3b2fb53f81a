"""Give columns other names, in the key too."""

from __future__ import annotations

from collections.abc import Mapping

from changefeed.transforms.change import Change, Row


def transform(change: Change, columns: Mapping[str, str]) -> Change:
    """``change`` with each column that ``columns`` has the old name of under its new one, in the same order.

    Raises ValueError where another column has that name.
    """

    def renamed(row: Row | None) -> Row | None:
        if row is None:
            return None
        new = {columns.get(name, name): value for name, value in row.items()}
        if len(new) != len(row):
            raise ValueError(f"two columns would have one name: wanted different ones, {dict(columns)} of {list(row)}")
        return new

    return change.changed(
        before=renamed(change.before),
        after=renamed(change.after),
        key=tuple(columns.get(name, name) for name in change.key),
    )
