"""Changes of rows joined: which rows are gone and which are there now, told apart by a primary key or by all values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from changefeed.errors import AccountingError
from changefeed.formats.reader import JsonImage
from changefeed.model.identifier import quoted
from changefeed.model.table_schema import TableSchema
from changefeed.replicate.row_texts import RowTexts, label_of

KEYS_AT_ONCE = 900
"""Of one DELETE: with 1,000 MariaDB makes a subquery of them, and with many more MySQL reads the whole table."""
STATEMENT_BYTES = 40_000
"""Of one statement, if a single row does not take more: of much larger ones servers take half as long again a row."""


_LITERAL = re.compile(rb"""FROM_BASE64\("[^"]*+"\)|x?'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[^,"'()]++""", re.DOTALL)
_NUMBER = re.compile(rb"(\d++)[,)]")

_NO_CHARACTER = "\ufffd".encode()
"""What records have in place of bytes that are no character, which a server refuses: of a row that came and went only
the number counts."""


class CountedColumn:
    """The AUTO_INCREMENT column of a table, at number ``at`` of a row's literals, which are in brackets."""

    def __init__(self, at: int) -> None:
        self._at, self._highest = at, 0

    def is_passed(self, row: bytes) -> bool:
        """Whether ``row`` has a higher number than all rows before; it counts from now on."""
        begin = 1
        for _ in range(self._at):
            before = _LITERAL.match(row, begin)
            if before is None:
                return False
            begin = before.end() + 1
        found = _NUMBER.match(row, begin)
        number = int(found[1]) if found else 0
        is_higher, self._highest = number > self._highest, max(number, self._highest)
        return is_higher


class KeyedRows:
    """The joined changes of ``table``. Rows are their SQL, in brackets; keys that of the key's value, or of several
    columns the condition that each has its value (not (a, b) IN …: MariaDB compares texts of two charsets wrongly)."""

    def __init__(self, table: TableSchema, name: str, insert: str, counted: CountedColumn | None = None) -> None:
        key = [table.columns[number] for number in sorted(table.primary_key)]
        self._single = len(key) == 1
        self.labels = [label_of(column, first=column is key[0], single=self._single) for column in key]
        self._what = f"{table.database}.{table.table}"
        self.insert = insert.encode()
        where = f"{quoted(key[0].name)} IN (" if self._single else "("
        self._delete, self._joint = f"DELETE FROM {name} WHERE {where}".encode(), b"," if self._single else b") OR ("
        self._gone: dict[bytes, None] = {}
        self._new: dict[bytes, bytes] = {}
        self._counted = counted
        self._passed: tuple[bytes, bytes] | None = None
        """Key and row of the one with the highest number of those that came and went."""

    def __bool__(self) -> bool:
        """Whether there is anything to be written."""
        return bool(self._gone or self._new or self._passed)

    @property
    def keys(self) -> set[bytes]:
        """Of all rows that are to be written."""
        return {*self._gone, *self._new, *(self._passed or ())[:1]}

    def key(self, literals: Sequence[str]) -> bytes:
        """The key whose columns have these literals, in the order of the table's columns."""
        return "".join(map(str.__add__, self.labels, literals)).encode()

    def remove(self, key: bytes) -> None:
        """The row is gone. Raises AccountingError where it is gone already."""
        row = self._new.pop(key, None)
        if row is not None and self._counted is not None and self._counted.is_passed(row):
            self._passed = key.replace(_NO_CHARACTER, b"?"), row.replace(_NO_CHARACTER, b"?")
        if row is None:
            if key in self._gone:
                raise AccountingError(
                    f"{self._what}: the row with key {key[:200]!r} is removed twice: it was not there"
                )
            self._gone[key] = None

    def add(self, key: bytes, row: bytes) -> None:
        """There is a row now. Raises AccountingError where there is one with its key already."""
        if key in self._new:
            raise AccountingError(f"{self._what}: there are two rows with key {key[:200]!r}")
        self._new[key] = row

    def take(self, texts: RowTexts) -> None:
        """Join the changes that the kernel made ``texts`` of."""
        for before, after, row in texts.changes():
            if before:
                self.remove(before)
            if after:
                self.add(after, row)

    def statements(self) -> Iterator[tuple[bytes, int]]:
        """All that is to be written, each with the number of rows that it has to write; nothing is left then.

        A row that came and went is written, and deleted, where no number of AUTO_INCREMENT before was as high: the
        follower gives none again that the source gave.
        """
        gone, new, passed = list(self._gone), list(self._new.values()), self._passed
        self._gone, self._new, self._passed = {}, {}, None
        for at in range(0, len(gone), KEYS_AT_ONCE):
            yield from joined(self._delete, gone[at : at + KEYS_AT_ONCE], b")", self._joint)
        if passed is not None:
            yield self.insert + passed[1], 1
            yield self._delete + passed[0] + b")", 1
        yield from joined(self.insert, new, b"", b",")


def joined(head: bytes, values: Sequence[bytes], tail: bytes, joint: bytes) -> Iterator[tuple[bytes, int]]:
    """``values`` in as few statements as STATEMENT_BYTES allows; each with how many it has."""
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
    """The joined changes of a table without a primary key, whose rows ``insert`` (its beginning) inserts."""

    def __init__(self, insert: str, counted: CountedColumn | None = None) -> None:
        self._insert = insert.encode()
        self._counted = counted
        self._passed: tuple[Row, JsonImage] | None = None
        self._gone: dict[Row, tuple[int, JsonImage]] = {}
        """Of rows that the follower has and that are gone now: how many, and one of them as a message has it."""
        self._new: dict[Row, int] = {}

    def remove(self, row: Row, image: JsonImage) -> None:
        """A row is gone; ``image`` is it as a message has it."""
        count = self._new.get(row, 0)
        if count:
            self._new[row] = count - 1
            if self._counted is not None and self._counted.is_passed(_in_brackets(row)):
                self._passed = (
                    tuple(literal.replace(_NO_CHARACTER.decode(), "?") for literal in row),
                    {name: _without_replacement(value) for name, value in image.items()},
                )
        else:
            self._gone[row] = (self._gone.get(row, (0,))[0] + 1, image)

    def add(self, row: Row) -> None:
        """There is a further row."""
        count, image = self._gone.get(row, (0, {}))
        if count:  # it went and came back
            self._gone[row] = (count - 1, image)
        else:
            self._new[row] = self._new.get(row, 0) + 1

    def gone(self) -> Iterator[tuple[Row, JsonImage, int]]:
        """The rows that are to be deleted, as SQL and as a message has them, and how many like each; none is left
        then."""
        gone, self._gone = self._gone, {}
        yield from ((row, image, count) for row, (count, image) in gone.items() if count)

    def passed(self) -> Iterator[tuple[bytes, JsonImage]]:
        """The row that came and went whose number of AUTO_INCREMENT is the highest so far, as the statement that
        inserts it and as a message has it; none is left then."""
        passed, self._passed = self._passed, None
        if passed is not None:
            yield self._insert + _in_brackets(passed[0]), passed[1]

    def inserts(self) -> Iterator[tuple[bytes, int]]:
        """Statements that insert the new rows, and how many rows each has; none is left then."""
        new, self._new = self._new, {}
        rows = [_in_brackets(row) for row, count in new.items() for _ in range(count)]
        yield from joined(self._insert, rows, b"", b",")


def _in_brackets(row: Row) -> bytes:
    return f"({','.join(row)})".encode()


def _without_replacement(value: object) -> object:
    return value.replace(_NO_CHARACTER.decode(), "?") if isinstance(value, str) else value
