"""Binds a row filter to a table: returns the predicate's columns and constants as words for the kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from changefeed.binlog.kernel import layout
from changefeed.binlog.programs.bound_table import BoundTable
from changefeed.binlog.programs.codecs import BoundColumn
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.programs.temporal_constants import BYTES, date_word
from changefeed.errors import SettingsError, did_you_mean
from changefeed.model import charset_codes, column_types
from changefeed.model.column_types import WIRE_TYPES
from changefeed.model.message_key import chosen_columns
from changefeed.model.row_predicate import (
    Both,
    ColumnOf,
    Comparison,
    Constant,
    Either,
    IsNull,
    Like,
    Not,
    Operator,
    RowFilter,
    RowPredicate,
)

_RELATIONS: dict[Operator, int] = {
    "=": layout.EQUAL,
    "<>": layout.LESS | layout.GREATER,
    "<": layout.LESS,
    "<=": layout.LESS | layout.EQUAL,
    ">": layout.GREATER,
    ">=": layout.GREATER | layout.EQUAL,
}
_IMAGES = {"before": 0, "after": layout.IMAGE, "row": layout.ROW_IMAGE}
_NEVER, _ALWAYS = 0, layout.LESS | layout.EQUAL | layout.GREATER
_INTEGERS = {
    column_types.TINY: 1,
    column_types.SHORT: 2,
    column_types.INT24: 3,
    column_types.LONG: 4,
    column_types.LONGLONG: 8,
}
_ORDERED = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii", "binary"})
"""Charsets in which the order of bytes is the order of code points."""
_UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8"})
_IN_PATTERNS = _UTF8 | {"ascii", "latin1", "binary"}
"""Charsets that patterns support."""
_STORED_OTHERWISE = frozenset({"uuid", "inet4", "inet6"})
_FIRST_YEAR = 1900
"""A YEAR is stored as the number of years since this one."""
Moment = TypeVar("Moment", int, bytes)
_DIGITS_TO_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""The size of a group of digits in a DECIMAL, by the number of digits (`dig2bytes` in strings/decimal.cc)."""


def filter_words(row_filter: RowFilter, table: BoundTable, memory: ProgramMemory) -> list[int]:
    """The words of the filter, for the kernel's `passes_filter`.

    Raises SettingsError for a column that the table does not have, and for a comparison that its type does not support.
    """
    binder = _Binder(row_filter.setting, table, memory)
    binder.add(row_filter.predicate)
    if len(binder.words) // layout.FILTER > layout.MAX_FILTER:
        raise SettingsError(f"{row_filter.setting} has more than {layout.MAX_FILTER} tests: use fewer")
    return [len(binder.words) // layout.FILTER, *binder.words]


def current_words(row_end: int, table: BoundTable, memory: ProgramMemory) -> list[int]:
    """The words of a filter for images of current rows: the column ``row_end`` has the largest value of its type.

    This value is the largest transaction number, or the last moment of a TIMESTAMP, which is in 2038 before MariaDB
    11.5 and in 2106 from then on.

    Source: https://mariadb.com/kb/en/system-versioned-tables/, https://mariadb.com/kb/en/timestamp/
    """
    first = (layout.ROW_IMAGE, row_end)
    if WIRE_TYPES[table.columns[row_end].type] is column_types.LONGLONG:
        return [1, layout.FILTER_NUMBER, *first, *_number(layout.EQUAL, 2**64 - 1, 64, unsigned=True)[1:]]
    words = [3]
    for seconds in (2**31 - 1, 2**32 - 1):
        last = seconds.to_bytes(4, "big") + (999_999).to_bytes(3, "big")
        words += (layout.FILTER_BYTES, *first, layout.EQUAL, memory.place_bytes(last), len(last))
    return [*words, layout.FILTER_OR, 0, 0, 0, 0, 0]


class _Binder:
    def __init__(self, setting: str, table: BoundTable, memory: ProgramMemory) -> None:
        self._setting, self._table, self._memory = setting, table, memory
        self.words: list[int] = []

    def add(self, predicate: RowPredicate) -> None:
        match predicate:
            case Both(first, second) | Either(first, second):
                self.add(first)
                self.add(second)
                self._add_step(layout.FILTER_AND if isinstance(predicate, Both) else layout.FILTER_OR)
            case Not(part):
                self.add(part)
                self._add_step(layout.FILTER_NOT)
            case IsNull(column):
                self._add_step(layout.FILTER_NULL, _IMAGES[column.image], self._position(column))
            case Comparison(column, operator, constant):
                position = self._position(column)
                test = self._test(position, operator, constant)
                self._add_step(test[0], _IMAGES[column.image], position, *test[1:])
            case Like(column):
                position = self._position(column)
                self._add_step(layout.FILTER_LIKE, _IMAGES[column.image], position, *self._pattern(position, predicate))

    def _add_step(self, *words: int) -> None:
        self.words += (*words, *[0] * (layout.FILTER - len(words)))

    def _position(self, column: ColumnOf) -> int:
        (position,) = chosen_columns(self._table.schema, [column.name], f"{self._setting} compares", "")
        return position

    def _test(self, position: int, operator: Operator, constant: Constant) -> tuple[int, int, int, int]:
        """Four words of a test's step: code, relation, constant or its address, and a property of the constant.

        The property is 1 for an unsigned number, or the size of bytes."""
        column = self._table.columns[position]
        wire, relation = WIRE_TYPES[column.type], _RELATIONS[operator]
        if wire in _INTEGERS:
            return _number(relation, self._numeric(column, constant), 8 * _INTEGERS[wire], unsigned=column.unsigned)
        if wire is column_types.NEWDECIMAL:
            number = Decimal(self._numeric(column, constant))
            return self._bytes(*_decimal(relation, number, column.meta >> 8, column.meta & 0xFF))
        if wire is column_types.ENUM and operator in ("=", "<>"):
            return _number(relation, self._label(column, constant), 8 * column.meta, unsigned=True)
        if wire is column_types.DATE:
            return layout.FILTER_NUMBER, relation, self._moment(column, constant, date_word), 1
        if wire in BYTES:
            return self._bytes(relation, self._moment(column, constant, lambda text: BYTES[wire](text, column.meta)))
        if wire is column_types.YEAR:
            return layout.FILTER_NUMBER, relation, self._year(column, constant), 1
        if self._is_text(position):
            return self._bytes(relation, self._text(column, operator, constant))
        named = f"{operator} of " if wire is column_types.ENUM else ""
        raise SettingsError(
            f"{self._setting} compares {self._table.schema.database}.{self._table.schema.table}.{column.name}, and "
            f"{named}{self._table.schema.columns[position].data_type} cannot be compared: expected an integer, "
            "DECIMAL, text or bytes, a date or time, or = and <> of an ENUM. IS NULL works for each column."
        )

    def _is_text(self, position: int) -> bool:
        """Whether values of the column are text or bytes, and are written as they are stored."""
        wire = WIRE_TYPES[self._table.columns[position].type]
        other = (column_types.JSON, column_types.VECTOR)
        return (
            wire.has_charset and wire not in other and self._table.columns[position].data_type not in _STORED_OTHERWISE
        )

    def _pattern(self, position: int, like: Like) -> tuple[int, int, int]:
        """1 for UTF-8, else 0; the address of the pattern's words; and their number."""
        column = self._table.columns[position]
        name = f"{self._table.schema.database}.{self._table.schema.table}.{column.name}"
        if not self._is_text(position) or column.charset not in _IN_PATTERNS or _is_padded(column):
            raise SettingsError(
                f"{self._setting} has LIKE of {name}, a {self._table.schema.columns[position].data_type} of charset "
                f"{column.charset}: expected text in {', '.join(sorted(_IN_PATTERNS - {'utf8'}))}, or VARBINARY or BLOB"
            )
        if not column.distinguishes_characters:
            raise SettingsError(
                f"{self._setting} has LIKE of {name}, whose collation has equal characters, or is unknown: LIKE is "
                "supported for collations that end with _bin. Compare with =, or give the column such a collation"
            )
        words, escaped = list[int](), False
        for character in like.pattern:
            if escaped or character not in ("%", "_", like.escape):
                encoded = charset_codes.encode_text(character, column.charset)
                if encoded is None:
                    raise self._refusal(column, like.pattern, f"text that {column.charset} can hold")
                words += encoded
                escaped = False
            elif character == like.escape:
                escaped = True
            else:
                words.append(layout.ANY if character == "%" else layout.ANY_ONE)
        return int(column.charset in _UTF8), self._memory.place_words(words), len(words)

    def _moment(self, column: BoundColumn, constant: Constant, parse: Callable[[str], Moment]) -> Moment:
        if not isinstance(constant, str):
            raise self._refusal(column, constant, "a date or time in quotes")
        try:
            return parse(constant)
        except ValueError as error:
            raise self._refusal(column, constant, str(error)) from None

    def _year(self, column: BoundColumn, constant: Constant) -> int:
        if not isinstance(constant, int) or not _FIRST_YEAR < constant <= _FIRST_YEAR + 255:
            raise self._refusal(column, constant, f"a year from {_FIRST_YEAR + 1} to {_FIRST_YEAR + 255}")
        return constant - _FIRST_YEAR

    def _bytes(self, relation: int, data: bytes) -> tuple[int, int, int, int]:
        return layout.FILTER_BYTES, relation, self._memory.place_bytes(data), len(data)

    def _refusal(self, column: BoundColumn, constant: Constant, expected: str) -> SettingsError:
        return SettingsError(
            f"{self._setting} compares {self._table.schema.database}.{self._table.schema.table}.{column.name} with "
            f"{constant!r}: expected {expected}"
        )

    def _numeric(self, column: BoundColumn, constant: Constant) -> int | Decimal:
        if isinstance(constant, int | Decimal):
            return constant
        raise self._refusal(column, constant, "a number, as the column is one")

    def _label(self, column: BoundColumn, constant: Constant) -> int:
        labels = column.labels or ()
        if isinstance(constant, str) and constant in labels:
            return labels.index(constant) + 1
        raise self._refusal(column, constant, f"one of {', '.join(labels)}{did_you_mean(str(constant), labels)}")

    def _text(self, column: BoundColumn, operator: Operator, constant: Constant) -> bytes:
        if operator not in ("=", "<>") and column.charset not in _ORDERED:
            raise self._refusal(column, constant, f"= or <>: the order of {column.charset} is not supported")
        if _is_padded(column):
            data = constant.encode() if isinstance(constant, str) else constant
            if not isinstance(data, bytes) or len(data) != column.meta:
                raise self._refusal(column, constant, f"{column.meta} bytes, as many as each of its values has")
            return data.rstrip(b"\0")  # row images omit zero bytes at the end, too
        if isinstance(constant, bytes):
            return constant
        if not isinstance(constant, str):
            raise self._refusal(column, constant, "text in quotes")
        encoded = charset_codes.encode_text(constant, column.charset)
        if encoded is None:
            raise self._refusal(column, constant, f"text that {column.charset} can hold")
        return encoded


def _is_padded(column: BoundColumn) -> bool:
    """Whether the column is a BINARY: row images omit the zero bytes at the end of its values."""
    return WIRE_TYPES[column.type] is column_types.STRING and column.charset == "binary"


def _number(relation: int, constant: int | Decimal, bits: int, *, unsigned: bool) -> tuple[int, int, int, int]:
    """The test that compares an integer of ``bits`` bits with ``constant``."""
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    relation, nearest = _whole_relation(relation, constant, low, high)
    return layout.FILTER_NUMBER, relation, nearest - 2**63 if unsigned and bits == 64 else nearest, int(unsigned)


def _whole_relation(relation: int, constant: int | Decimal | Fraction, low: int, high: int) -> tuple[int, int]:
    """A relation and an integer from ``low`` to ``high`` that are equivalent for all integers in this range."""
    nearest = math.floor(constant)
    if nearest != constant:  # n < 1.5 is n <= 1, n > 1.5 is n > 1, and no n is 1.5
        relation = (relation & layout.GREATER) | ((layout.LESS | layout.EQUAL) if relation & layout.LESS else 0)
    if low <= nearest <= high:
        return relation, nearest
    return _ALWAYS if relation & (layout.LESS if nearest > high else layout.GREATER) else _NEVER, low


def _decimal(relation: int, constant: Decimal, precision: int, scale: int) -> tuple[int, bytes]:
    """The relation and the bytes for a comparison with a DECIMAL.

    The order of the bytes is the order of the numbers.
    """
    largest = 10**precision - 1
    relation, nearest = _whole_relation(relation, Fraction(constant) * 10**scale, -largest, largest)
    digits = f"{abs(nearest):0{precision}d}"
    before, fraction = digits[: precision - scale], digits[precision - scale :]
    head = len(before) % 9
    groups = [before[:head]] + [before[at : at + 9] for at in range(head, len(before), 9)]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    data = bytearray()
    for group in groups:
        data += int(group or "0").to_bytes(_DIGITS_TO_BYTES[len(group)], "big")
    if nearest < 0:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return relation, bytes(data)
