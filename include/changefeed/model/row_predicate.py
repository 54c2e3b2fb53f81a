"""Row filters: conditions on the images of a row. As in SQL, a condition is true, false or unknown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from changefeed.model.message_key import chosen_columns
from changefeed.model.table_schema import TableSchema

Image = Literal["before", "after", "row"]
"""`row` is the before image of a delete, else the after image."""
Operator = Literal["=", "<>", "<", "<=", ">", ">="]
Constant = int | Decimal | str | bytes


@dataclass(frozen=True)
class ColumnOf:
    """A column of an image. If the op has no such image, the column is NULL."""

    image: Image
    name: str


@dataclass(frozen=True)
class Comparison:
    """A comparison of a column with a constant; unknown if the column is NULL."""

    column: ColumnOf
    operator: Operator
    constant: Constant


@dataclass(frozen=True)
class Like:
    """A comparison of a column's text with a pattern; unknown if the column is NULL.

    In ``pattern`` `%` matches any characters, `_` matches one, and a character after ``escape`` matches itself.
    """

    column: ColumnOf
    pattern: str
    escape: str = "\\"


@dataclass(frozen=True)
class IsNull:
    """Whether the column is NULL; never unknown."""

    column: ColumnOf


@dataclass(frozen=True)
class Not:
    """NOT: unknown if its part is unknown."""

    part: RowPredicate


@dataclass(frozen=True)
class Both:
    """AND: false if one part is false, also if the other is unknown."""

    first: RowPredicate
    second: RowPredicate


@dataclass(frozen=True)
class Either:
    """OR: true if one part is true, also if the other is unknown."""

    first: RowPredicate
    second: RowPredicate


RowPredicate = Comparison | Like | IsNull | Not | Both | Either


def columns_of(predicate: RowPredicate) -> tuple[str, ...]:
    """The names of the columns that a condition compares."""
    match predicate:
        case Both(first, second) | Either(first, second):
            return *columns_of(first), *columns_of(second)
        case Not(part):
            return columns_of(part)
    return (predicate.column.name,)


@dataclass(frozen=True)
class RowFilter:
    """A filter that publishes only rows for which ``predicate`` is true. ``setting`` is its name, for messages."""

    predicate: RowPredicate
    setting: str

    def check_columns(self, table: TableSchema) -> None:
        """Raises SettingsError for a column that ``table`` does not have."""
        for name in columns_of(self.predicate):
            chosen_columns(table, [name], f"{self.setting} compares", "")
