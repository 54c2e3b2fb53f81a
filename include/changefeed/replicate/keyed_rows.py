"""What becomes of rows that a primary key tells apart: those that are gone, and those that there are now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from changefeed.errors import AccountingError
from changefeed.replicate.literals import quoted_name
from changefeed.replicate.row_texts import RowTexts, label_of
from changefeed.table_schema import TableSchema

KEYS_AT_ONCE = 900
"""Of one DELETE: with 1,000 MariaDB makes a subquery of them, and with many more MySQL reads the whole table."""
STATEMENT_BYTES = 40_000
"""Of one statement, if a single row does not take more: of much larger ones servers take half as long again a row."""


class KeyedRows:
    """The joined changes of ``table``. Rows are their SQL, in brackets; keys that of the key's value, or of several
    columns the condition that each has its value (not (a, b) IN …: MariaDB compares texts of two charsets wrongly)."""

    def __init__(self, table: TableSchema, name: str, insert: str) -> None:
        key = [table.columns[number] for number in sorted(table.primary_key)]
        self._single = len(key) == 1
        self.labels = [label_of(column, first=column is key[0], single=self._single) for column in key]
        self._what = f"{table.database}.{table.table}"
        self.insert = insert.encode()
        where = f"{quoted_name(key[0].name)} IN (" if self._single else "("
        self._delete, self._joint = f"DELETE FROM {name} WHERE {where}".encode(), b"," if self._single else b") OR ("
        self._gone: dict[bytes, None] = {}
        self._new: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to be written."""
        return bool(self._gone or self._new)

    @property
    def keys(self) -> set[bytes]:
        """Of all rows that are to be written."""
        return {*self._gone, *self._new}

    def key(self, literals: Sequence[str]) -> bytes:
        """The key whose columns have these literals, in the order of the table's columns."""
        return "".join(map(str.__add__, self.labels, literals)).encode()

    def remove(self, key: bytes) -> None:
        """The row is gone. Raises AccountingError where it is gone already."""
        if self._new.pop(key, None) is None:
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
        """All that is to be written, each with the number of rows that it has to write; nothing is left then."""
        gone, new = list(self._gone), list(self._new.values())
        self._gone, self._new = {}, {}
        for at in range(0, len(gone), KEYS_AT_ONCE):
            yield from joined(self._delete, gone[at : at + KEYS_AT_ONCE], b")", self._joint)
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
