"""Which columns a pipeline leaves out of its records or masks, and how."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from changefeed.errors import SettingsError
from changefeed.model.table_pattern import matcher
from changefeed.model.table_schema import Column, TableSchema


@dataclass(frozen=True)
class Excluded:
    """The column is left out."""


@dataclass(frozen=True)
class Constant:
    """Each value is ``text``, or null where that is None."""

    text: str | None


@dataclass(frozen=True)
class FirstCharacters:
    """Text is cut to its first ``count`` characters; columns that are no text are refused."""

    count: int


@dataclass(frozen=True)
class Sha256:
    """The SHA-256 of ``salt`` and the value's text, in hexadecimal: the same for the same value."""

    salt: str = field(repr=False)


@dataclass(frozen=True)
class HmacSha256:
    """The HMAC-SHA256 (RFC 2104) of the value's text under ``key``, in hexadecimal: the same for the same value."""

    key: str = field(repr=False)


Treatment = Excluded | Constant | FirstCharacters | Sha256 | HmacSha256
"""What happens to a column's values. NULL stays null under each mask."""


@dataclass(frozen=True)
class ColumnRule:
    """``pattern`` is of DATABASE.TABLE.COLUMN, ``setting`` the key of the YAML that it stands under.

    See `table_pattern` for what it may be.
    """

    pattern: str
    treatment: Treatment
    setting: str

    def covers(self, database: str, table: str, column: str) -> bool:
        """Whether the column matches, in whatever case: column names have none in MySQL."""
        return matcher(self.pattern, ignore_case=True).fullmatch(f"{database}.{table}.{column}") is not None


@dataclass(frozen=True)
class ColumnRules:
    """A pipeline's rules; of two for one column the first counts. ``file`` is the name that messages give them."""

    rules: tuple[ColumnRule, ...] = ()
    file: str = ""
    transformed: bool = False
    """Whether functions of the pipeline change rows besides."""

    @property
    def hides_statements(self) -> bool:
        """Whether no message may have a statement's text, for it has the values that rules or functions hide."""
        return bool(self.rules) or self.transformed

    def of(self, table: TableSchema) -> dict[int, Treatment]:
        """The treatments of a table's columns, by position; those that the server hides are left out.

        Raises SettingsError where a rule covers a column of the key: a record without its key, or with one
        that several rows share, would be lost in a compacted topic.
        """
        treatments: dict[int, Treatment] = {}
        for position, column in enumerate(table.columns):
            if column.hidden and position not in table.primary_key:
                treatments[position] = Excluded()
                continue
            rule = next((rule for rule in self.rules if rule.covers(table.database, table.table, column.name)), None)
            if rule is None:
                continue
            if position in table.primary_key:
                raise SettingsError(
                    f"{self.file}: {rule.pattern!r} in {rule.setting} covers {table.database}.{table.table}."
                    f"{column.name}, which belongs to the primary key (or to what `keys` and `keyless` choose in its "
                    "stead): it may not be left out or masked, because it is the records' key. Write a pattern that "
                    "does not match it, or leave the table out."
                )
            treatments[position] = rule.treatment
        return treatments

    def shown(self, table: TableSchema) -> TableSchema:
        """``table`` as its records show it: without the columns that are left out, and masked ones as what the mask
        makes of them. Raises as `of`."""
        treatments = self.of(table)
        kept = [number for number in range(len(table.columns)) if treatments.get(number) != Excluded()]
        columns = tuple(as_shown(table.columns[number], treatments.get(number)) for number in kept)
        key = tuple(kept.index(number) for number in table.primary_key)
        return replace(table, columns=columns, primary_key=key) if treatments else table


def as_shown(column: Column, treatment: Treatment | None) -> Column:
    """``column`` as its records show it under ``treatment``: most masks make text of its values."""
    match treatment:
        case None | Excluded():
            return column
        case Constant(None) if not column.labels:
            return replace(column, nullable=True, default=None, comment=None)
        case Constant(None):
            return Column(column.name, "varchar", nullable=True)
        case FirstCharacters():
            return replace(column, default=None, comment=None)
    return Column(column.name, "varchar", nullable=column.nullable)


ALL_SHOWN = ColumnRules()
"""No rules: each column as it is."""
