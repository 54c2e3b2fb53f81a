"""What becomes of rows that no key tells apart: all their values do, and of several that are alike their number."""

from __future__ import annotations

from collections.abc import Iterator

from changefeed.formats.envelope import JsonImage
from changefeed.replicate.keyed_rows import joined

Row = tuple[str, ...]
"""The literals of a row's columns, in the table's order."""


class KeylessRows:
    """The joined changes of a table without a primary key, whose rows ``insert`` (its beginning) inserts."""

    def __init__(self, insert: str) -> None:
        self._insert = insert.encode()
        self._gone: dict[Row, tuple[int, JsonImage]] = {}
        """Of rows that the follower has and that are gone now: how many, and one of them as a message has it."""
        self._new: dict[Row, int] = {}

    def remove(self, row: Row, image: JsonImage) -> None:
        """A row is gone; ``image`` is it as a message has it."""
        count = self._new.get(row, 0)
        if count:
            self._new[row] = count - 1
        else:
            self._gone[row] = (self._gone.get(row, (0,))[0] + 1, image)

    def add(self, row: Row) -> None:
        """There is a further row."""
        count, image = self._gone.get(row, (0, {}))
        if count:  # it went and came back
            self._gone[row] = (count - 1, image)
        else:
            self._new[row] = self._new.get(row, 0) + 1

    def gone(self) -> Iterator[tuple[JsonImage, int]]:
        """The rows that are to be deleted, and how many like each; none is left then."""
        gone, self._gone = self._gone, {}
        yield from ((image, count) for count, image in gone.values() if count)

    def inserts(self) -> Iterator[tuple[bytes, int]]:
        """Statements that insert the new rows, and how many rows each has; none is left then."""
        new, self._new = self._new, {}
        rows = [f"({','.join(row)})".encode() for row, count in new.items() for _ in range(count)]
        yield from joined(self._insert, rows, b"", b",")
