"""`keys` of a pipeline's YAML: which columns are the messages' key, by pattern of tables."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from changefeed.pipelines.table_pattern import TablePattern


def _once_each(columns: list[str]) -> list[str]:
    for number, name in enumerate(columns):
        if name.lower() in (other.lower() for other in columns[:number]):
            raise ValueError(f"column {name!r} stands there twice")
    return columns


KeyColumns = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1), AfterValidator(_once_each)]
"""Names of columns, in the order in which the key has them; case does not count."""
KeySettings = dict[TablePattern, KeyColumns]
"""Of two patterns that take a table the first counts."""
