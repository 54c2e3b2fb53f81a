"""Writes rows of one table as SQL with the kernel, for messages with types and forms that the kernel supports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column, TableSchema
from changefeed.native.memory import Bytes, Words
from changefeed.replicate import sql_rows as kernel

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_TEXTS = frozenset(
    {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "date", "time", "uuid", "inet4", "inet6"}
)
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_ISO = (Encoding.ISO, Encoding.SQL)
_BIGINTS = {
    Encoding.NUMBER: kernel.NUMBER,
    Encoding.LONG: kernel.NATURAL,
    Encoding.STRING: kernel.QUOTED_NUMBER,
}
_IN_KEYS = (kernel.NUMBER, kernel.NATURAL, kernel.TEXT, kernel.MOMENT)
"""The kinds of key columns. The kernel and `literal_of` write equal literals for them, so keys can be compared."""


@dataclass(frozen=True)
class RowTexts:
    """The SQL that the kernel wrote for messages.

    ``words`` has a row for each message, with the columns of `sql_rows`. They are the positions of the message's SQL in
    ``rows`` and ``keys``.
    """

    words: Words
    rows: memoryview
    keys: memoryview

    @property
    def is_complete(self) -> bool:
        """Whether the kernel wrote the SQL of all messages."""
        return bool((self.words[:, kernel.OLD_KEY_END] + self.words[:, kernel.NEW_KEY_END] > 0).all())

    @property
    def are_all_new(self) -> bool:
        """Whether all messages are inserts."""
        old, new = self._sizes()
        return bool((old == 0).all() and (new > 0).all())

    def _sizes(self) -> tuple[Words, Words]:
        words = self.words
        return (
            words[:, kernel.OLD_KEY_END] - words[:, kernel.OLD_KEY],
            words[:, kernel.NEW_KEY_END] - words[:, kernel.NEW_KEY],
        )

    @property
    def new_keys(self) -> set[bytes]:
        """The keys of all rows after their changes."""
        ends = self.words[:, kernel.NEW_KEY_END]
        keys = bytes(self.keys[: int(ends.max(initial=0))])
        return {
            keys[begin:end] for begin, end in zip(self.words[:, kernel.NEW_KEY].tolist(), ends.tolist(), strict=True)
        }

    def statements(self, characters: int) -> Sequence[tuple[memoryview, int]]:
        """The SQL of the rows in parts of about ``characters`` bytes, each with its number of rows.

        All messages must be inserts (`are_all_new`).
        """
        ends = self.words[:, kernel.ROW_END]
        parts, begin, first = [], 0, 0
        while first < len(ends):
            last = max(int(np.searchsorted(ends, begin + characters)), first + 1)
            end = int(ends[last - 1])
            parts.append((self.rows[begin:end], last - first))
            begin, first = end + 1, last
        return parts

    def changes(self) -> Sequence[tuple[bytes, bytes, bytes]]:
        """For each message, the key before the change, the key after it, and the new row; b'' for a missing part."""
        ends = self.words[:, [kernel.ROW_END, kernel.OLD_KEY_END, kernel.NEW_KEY_END]].max(axis=0)
        rows, keys = bytes(self.rows[: ends[0]]), bytes(self.keys[: max(ends[1:])])
        return [(keys[c:d], keys[e:f], rows[a:b]) for a, b, e, f, c, d in self.words.tolist()]


class RowTextMaker:
    """Writes the SQL of messages of ``table``. ``kinds`` has the form of each column's values in messages."""

    def __init__(self, table: TableSchema, kinds: Sequence[int]) -> None:
        columns = table.columns
        single = len(table.primary_key) == 1
        fixed = [b'{"before":', b',"after":', b',"source":{']
        named = [(b',"db":', table.database), (b',"table":', table.table)]
        texts = fixed + [name + orjson.dumps(value) for name, value in named]
        texts += [(b"," if number else b"{") + orjson.dumps(c.name) + b":" for number, c in enumerate(columns)]
        labels = np.full(len(columns), -1, np.int64)
        for number in table.primary_key:
            labels[number] = len(texts)
            texts.append(label_of(columns[number], first=number == min(table.primary_key), single=single).encode())
        self._texts = np.frombuffer(bytearray().join(texts), np.uint8)
        self._ends = np.cumsum([len(text) for text in texts]).astype(np.int64)
        self._names = np.array([len(name) for name, _ in named], np.int64)
        self._kinds = np.array(kinds, np.int64)
        self._labels = labels
        self._room = len(columns) * kernel.ROOM_OF_VALUE
        self._key_room = self._room + sum(map(len, texts[len(fixed) + len(named) + len(columns) :]))

    @classmethod
    def of(cls, table: TableSchema, style: Style) -> RowTextMaker | None:
        """The maker for a table; None if the table has no primary key, or types that the kernel does not support."""
        kinds = [_kind(column, style) for column in table.columns]
        keys = [kinds[number] for number in table.primary_key]
        if None in kinds or not keys or any(kind not in _IN_KEYS for kind in keys):
            return None
        return cls(table, [kind for kind in kinds if kind is not None])

    def make_texts(self, data: Bytes, values: Words) -> RowTexts:
        """The SQL of the messages in ``data``. ``values`` has the begin and the end of each message (n x 2)."""
        count = len(values)
        size = int((values[:, 1] - values[:, 0]).sum())
        out = np.empty(size + count * self._room + kernel.ROOM_OF_VALUE, np.uint8)
        keys = np.empty(size + count * 2 * self._key_room + kernel.ROOM_OF_VALUE, np.uint8)
        words = np.empty(count * kernel.WORDS, np.int64)
        flat: Any = np.ascontiguousarray(values).reshape(-1)
        kernel.put_rows(
            data, flat, self._texts, self._ends, self._names, self._kinds, self._labels, out, keys, words
        )  # fmt: skip
        return RowTexts(words.reshape(count, kernel.WORDS), out.data, keys.data)


def label_of(column: Column, *, first: bool, single: bool) -> str:
    """The text before the column's value in a key: '' for a key of one column, else the begin of a condition."""
    return "" if single else f"{'' if first else ' AND '}{quote_name(column.name)} = "


def _kind(column: Column, style: Style) -> int | None:
    data_type = column.data_type
    number = _plain_kind(data_type, column, style)
    if not column.generated or number is None:
        return number
    return kernel.GENERATED_NUMBER if number in (kernel.NUMBER, kernel.NATURAL, kernel.DOUBLE) else kernel.GENERATED


def _plain_kind(data_type: str, column: Column, style: Style) -> int | None:
    if data_type == "bigint" and column.unsigned:
        return _BIGINTS.get(style[Kind.BIGINT_UNSIGNED])
    if data_type in _INTEGERS:
        return kernel.NUMBER
    if data_type == "double":
        return kernel.DOUBLE
    if data_type == "decimal":
        if style[Kind.DECIMAL] is Encoding.PRECISE:
            return kernel.UNSCALED + kernel.SCALE * (column.scale or 0)
        return kernel.QUOTED_NUMBER if style[Kind.DECIMAL] is Encoding.STRING else None
    if data_type in ("datetime", "timestamp"):
        return kernel.MOMENT if style[Kind(data_type)] in _ISO else None
    if data_type in ("date", "time") and style[Kind(data_type)] not in _ISO:
        return None
    if data_type in _TEXTS or (data_type == "json" and style[Kind.JSON] is Encoding.TEXT):
        return kernel.TEXT
    if data_type == "enum" and style[Kind.ENUM] is Encoding.LABEL and "" not in column.labels:
        return kernel.LABEL
    if data_type in _BINARY and style[Kind.BINARY] is Encoding.BASE64:
        return kernel.BASE64
    return None
