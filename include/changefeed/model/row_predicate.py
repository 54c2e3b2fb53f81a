"""Which rows are published: a condition over a row's images, as SQL has it, in three values: true, false, unknown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from changefeed.model.message_key import chosen_columns
from changefeed.model.table_schema import TableSchema

Image = Literal["before", "after", "row"]
"""`row` is the image that the op is about: before of a delete, after of all others."""
Operator = Literal["=", "<>", "<", "<=", ">", ">="]
Constant = int | Decimal | str | bytes


@dataclass(frozen=True)
class ColumnOf:
    """A column of an image. One that the op does not have, as a create's before image, has NULL in each column."""

    image: Image
    name: str


@dataclass(frozen=True)
class Comparison:
    """A column compared with a constant; unknown where the column is NULL."""

    column: ColumnOf
    operator: Operator
    constant: Constant


@dataclass(frozen=True)
class Like:
    """A column's text compared with a pattern; unknown where the column is NULL.

    In ``pattern`` `%` stands for any characters, `_` for one, and a character behind ``escape`` for itself.
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
    """Unknown where its part is."""

    part: RowPredicate


@dataclass(frozen=True)
class Both:
    """AND: false where one part is, whatever the other."""

    first: RowPredicate
    second: RowPredicate


@dataclass(frozen=True)
class Either:
    """OR: true where one part is, whatever the other."""

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
    """Rows for which ``predicate`` is true are published, and no others. ``setting`` says where it was written."""

    predicate: RowPredicate
    setting: str

    def check_columns(self, table: TableSchema) -> None:
        """Raises SettingsError for a column that ``table`` does not have."""
        for name in columns_of(self.predicate):
            chosen_columns(table, [name], f"{self.setting} compares", "")
