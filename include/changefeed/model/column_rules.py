"""Rules for columns that a pipeline excludes or masks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from changefeed.errors import SettingsError
from changefeed.model.table_pattern import matcher
from changefeed.model.table_schema import Column, TableSchema


@dataclass(frozen=True)
class Excluded:
    """Records do not have the column."""


@dataclass(frozen=True)
class Constant:
    """Each value is replaced by ``text``, or by null if ``text`` is None."""

    text: str | None


@dataclass(frozen=True)
class FirstCharacters:
    """Text is cut to its first ``count`` characters. A column of another type is an error."""

    count: int


@dataclass(frozen=True)
class Sha256:
    """Each value is replaced by the SHA-256 of ``salt`` and its text, in hexadecimal.

    Equal values have equal results.
    """

    salt: str = field(repr=False)


@dataclass(frozen=True)
class HmacSha256:
    """Each value is replaced by the HMAC-SHA256 (RFC 2104) of its text under ``key``, in hexadecimal.

    Equal values have equal results.
    """

    key: str = field(repr=False)


Treatment = Excluded | Constant | FirstCharacters | Sha256 | HmacSha256
"""The treatment of a column's values. Every mask leaves NULL as null."""


@dataclass(frozen=True)
class ColumnRule:
    """The treatment of the columns whose DATABASE.TABLE.COLUMN matches ``pattern`` (see `table_pattern`).

    ``setting`` is the rule's key in the YAML.
    """

    pattern: str
    treatment: Treatment
    setting: str

    def covers(self, database: str, table: str, column: str) -> bool:
        """Whether the column matches; column names are not case sensitive in MySQL."""
        return matcher(self.pattern, ignore_case=True).fullmatch(f"{database}.{table}.{column}") is not None


@dataclass(frozen=True)
class ColumnRules:
    """The column rules of a pipeline; the first rule that covers a column applies. ``file`` is for messages."""

    rules: tuple[ColumnRule, ...] = ()
    file: str = ""
    transformed: bool = False
    """Whether functions of the pipeline change rows, too."""

    @property
    def hides_statements(self) -> bool:
        """Whether messages must leave out statements' texts, because they have values that rules or functions hide."""
        return bool(self.rules) or self.transformed

    def of(self, table: TableSchema) -> dict[int, Treatment]:
        """The treatments of a table's columns, by position. Columns that the server hides are `Excluded`.

        Raises SettingsError if a rule covers a column of the key. A compacted topic would lose a record that has no key
        or that shares its key with other rows.
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

    def masked_table(self, table: TableSchema) -> TableSchema:
        """``table`` as records have it: without excluded columns, and masked columns with the type of the mask.

        Raises the errors of `of`.
        """
        treatments = self.of(table)
        kept = [number for number in range(len(table.columns)) if treatments.get(number) != Excluded()]
        columns = tuple(mask_column(table.columns[number], treatments.get(number)) for number in kept)
        key = tuple(kept.index(number) for number in table.primary_key)
        return replace(table, columns=columns, primary_key=key) if treatments else table


def mask_column(column: Column, treatment: Treatment | None) -> Column:
    """``column`` as records have it after ``treatment``. Most masks change its type to text."""
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
