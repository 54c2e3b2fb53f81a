"""Merges the changes of a table into rows to delete and rows to insert, by primary key or by all values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from changefeed.errors import AccountingError
from changefeed.formats.reader import JsonImage
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import TableSchema
from changefeed.replicate.row_texts import RowTexts, label_of

KEYS_AT_ONCE = 900
"""The maximum number of keys in one DELETE. From 1,000 keys on, MariaDB converts them to a subquery; with many more
keys, MySQL scans the table."""
STATEMENT_BYTES = 40_000
"""The maximum size of a statement, unless one row is larger. With much larger statements, servers need 1.5 times the
time for each row."""


_LITERAL = re.compile(rb"""FROM_BASE64\("[^"]*+"\)|x?'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[^,"'()]++""", re.DOTALL)
_NUMBER = re.compile(rb"(\d++)[,)]")

_NO_CHARACTER = "\ufffd".encode()
"""U+FFFD, which records have instead of undefined bytes. A server may refuse it, so it is replaced in a row that is
inserted only to raise AUTO_INCREMENT."""


class CountedColumn:
    """The AUTO_INCREMENT column of a table. Its value is the literal number ``at`` in the SQL of a row."""

    def __init__(self, at: int) -> None:
        self._at, self._highest_number = at, 0

    def raises_counter(self, row: bytes) -> bool:
        """Whether ``row`` has a higher number than all rows of earlier calls."""
        begin = 1
        for _ in range(self._at):
            before = _LITERAL.match(row, begin)
            if before is None:
                return False
            begin = before.end() + 1
        found = _NUMBER.match(row, begin)
        number = int(found[1]) if found else 0
        is_higher, self._highest_number = number > self._highest_number, max(number, self._highest_number)
        return is_higher


class KeyedRows:
    """The merged changes of ``table``, which has a primary key.

    A row is stored as its SQL in parentheses. A key of one column is stored as the literal of its value, a key of
    several columns as an SQL condition. It is not written as (a, b) IN …, because MariaDB then compares texts of two
    charsets incorrectly.
    """

    def __init__(self, table: TableSchema, name: str, insert: str, counted: CountedColumn | None = None) -> None:
        key = [table.columns[number] for number in sorted(table.primary_key)]
        self._single = len(key) == 1
        self.labels = [label_of(column, first=column is key[0], single=self._single) for column in key]
        self._what = f"{table.database}.{table.table}"
        self.insert = insert.encode()
        where = f"{quote_name(key[0].name)} IN (" if self._single else "("
        self._delete, self._joint = f"DELETE FROM {name} WHERE {where}".encode(), b"," if self._single else b") OR ("
        self._gone: dict[bytes, None] = {}
        self._new: dict[bytes, bytes] = {}
        self._counted = counted
        self._highest: tuple[bytes, bytes] | None = None
        """The key and SQL of the row with the highest AUTO_INCREMENT value that was inserted and deleted again."""

    def __bool__(self) -> bool:
        """Whether there are changes to write."""
        return bool(self._gone or self._new or self._highest)

    @property
    def keys(self) -> set[bytes]:
        """The keys of all rows to write or delete."""
        return {*self._gone, *self._new, *(self._highest or ())[:1]}

    def key(self, literals: Sequence[str]) -> bytes:
        """The key with these ``literals``, which are in the order of the table's columns."""
        return "".join(map(str.__add__, self.labels, literals)).encode()

    def remove(self, key: bytes) -> None:
        """Add a deleted row. Raises AccountingError if it is already deleted."""
        row = self._new.pop(key, None)
        if row is not None and self._counted is not None and self._counted.raises_counter(row):
            self._highest = key.replace(_NO_CHARACTER, b"?"), row.replace(_NO_CHARACTER, b"?")
        if row is None:
            if key in self._gone:
                raise AccountingError(
                    f"{self._what}: the row with key {key[:200]!r} is deleted twice without an insert in between"
                )
            self._gone[key] = None

    def add(self, key: bytes, row: bytes) -> None:
        """Add an inserted row. Raises AccountingError if a row with this key was already inserted."""
        if key in self._new:
            raise AccountingError(f"{self._what}: there are two rows with key {key[:200]!r}")
        self._new[key] = row

    def take(self, texts: RowTexts) -> None:
        """Merge the changes whose SQL the kernel wrote."""
        for before, after, row in texts.changes():
            if before:
                self.remove(before)
            if after:
                self.add(after, row)

    def statements(self) -> Iterator[tuple[bytes, int]]:
        """Yield the statements to run, each with the number of rows that it must change, and clear the changes.

        If the highest AUTO_INCREMENT value belongs to a row that was inserted and deleted again, this row is inserted
        and deleted here, too: the follower's counter must not fall behind the source's.
        """
        gone, new, passed = list(self._gone), list(self._new.values()), self._highest
        self._gone, self._new, self._highest = {}, {}, None
        for at in range(0, len(gone), KEYS_AT_ONCE):
            yield from join_statements(self._delete, gone[at : at + KEYS_AT_ONCE], b")", self._joint)
        if passed is not None:
            yield self.insert + passed[1], 1
            yield self._delete + passed[0] + b")", 1
        yield from join_statements(self.insert, new, b"", b",")


def join_statements(head: bytes, values: Sequence[bytes], tail: bytes, joint: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield statements of at most STATEMENT_BYTES with all ``values``, each with its number of values.

    A statement begins with ``head`` and ends with ``tail``. ``joint`` separates its values.
    """
    first = size = 0
    for number, value in enumerate(values):
        if number > first and size + len(value) > STATEMENT_BYTES:
            yield head + joint.join(values[first:number]) + tail, number - first
            first, size = number, 0
        size += len(value) + 1
    if first < len(values):
        yield head + joint.join(values[first:]) + tail, len(values) - first


Row = tuple[str, ...]
"""The literals of a row's columns, in the table's order."""


class KeylessRows:
    """The merged changes of a table without a primary key; ``insert`` is the beginning of its INSERT."""

    def __init__(self, insert: str, counted: CountedColumn | None = None) -> None:
        self._insert = insert.encode()
        self._counted = counted
        self._highest: tuple[Row, JsonImage] | None = None
        self._gone: dict[Row, tuple[int, JsonImage]] = {}
        """The rows to delete: the number of equal rows, and the row's image in messages."""
        self._new: dict[Row, int] = {}

    def remove(self, row: Row, image: JsonImage) -> None:
        """Add a deleted row. ``image`` is the row's image in messages."""
        count = self._new.get(row, 0)
        if count:
            self._new[row] = count - 1
            if self._counted is not None and self._counted.raises_counter(_parenthesize(row)):
                self._highest = (
                    tuple(literal.replace(_NO_CHARACTER.decode(), "?") for literal in row),
                    {name: _without_replacement(value) for name, value in image.items()},
                )
        else:
            self._gone[row] = (self._gone.get(row, (0,))[0] + 1, image)

    def add(self, row: Row) -> None:
        """Add an inserted row."""
        count, image = self._gone.get(row, (0, {}))
        if count:  # an equal row was deleted before
            self._gone[row] = (count - 1, image)
        else:
            self._new[row] = self._new.get(row, 0) + 1

    def take_deletes(self) -> Iterator[tuple[Row, JsonImage, int]]:
        """Yield the literals, the image and the number of equal rows of each row to delete, and clear these rows."""
        gone, self._gone = self._gone, {}
        yield from ((row, image, count) for row, (count, image) in gone.items() if count)

    def take_counter_row(self) -> Iterator[tuple[bytes, JsonImage]]:
        """Yield the INSERT and image of the row with the highest AUTO_INCREMENT value, and clear it.

        Yields nothing if that row was not inserted and deleted again.
        """
        passed, self._highest = self._highest, None
        if passed is not None:
            yield self._insert + _parenthesize(passed[0]), passed[1]

    def take_inserts(self) -> Iterator[tuple[bytes, int]]:
        """Yield the statements that insert the new rows, each with its number of rows, and clear these rows."""
        new, self._new = self._new, {}
        rows = [_parenthesize(row) for row, count in new.items() for _ in range(count)]
        yield from join_statements(self._insert, rows, b"", b",")


def _parenthesize(row: Row) -> bytes:
    return f"({','.join(row)})".encode()


def _without_replacement(value: object) -> object:
    return value.replace(_NO_CHARACTER.decode(), "?") if isinstance(value, str) else value
