"""Which columns are the messages' key: by `keys` of a pipeline's YAML, or by an option of its format."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from changefeed.formats.format import RowRules
from changefeed.message_key import Keyless, KeyRule
from changefeed.pipelines.table_pattern import TablePattern, matches


def _once_each(columns: list[str]) -> list[str]:
    for number, name in enumerate(columns):
        if name.lower() in (other.lower() for other in columns[:number]):
            raise ValueError(f"column {name!r} stands there twice")
    return columns


KeyColumns = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1), AfterValidator(_once_each)]
"""Names of columns, in the order in which the key has them; case does not count."""
KeySettings = dict[TablePattern, KeyColumns]
"""Of two patterns that take a table the first counts."""


def chosen_key(keys: KeySettings, keyless: Keyless, rules: RowRules, database: str, table: str, file: str) -> KeyRule:
    """How the key columns of a table are found: by the ``rules`` of its format, or by ``keys``."""
    if by_option := rules.key_columns(database, table):
        return KeyRule(by_option, keyless, f"{file}: {rules.in_place_of['keys']} in format")
    for pattern, columns in keys.items():
        if matches(pattern, database, table):
            return KeyRule(tuple(columns), keyless, f"{file}: {pattern!r} in keys")
    return KeyRule(keyless=keyless)
