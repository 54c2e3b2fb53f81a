"""Settings by pattern of tables: which columns are the messages' key, and which rows are published."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from changefeed.model.table_pattern import check_pattern, check_patterns, is_regex


def _checked_pattern(pattern: str) -> str:
    check_pattern(pattern)
    if not is_regex(pattern) and "." not in pattern:
        raise ValueError(
            f"{pattern!r} names no database: wanted DATABASE.TABLE, as in shop.* or *.orders, or a regular expression "
            r"between slashes, as in '/shop\.orders_\d+/'"
        )
    return pattern


TablePattern = Annotated[str, AfterValidator(_checked_pattern)]
"""A pattern in a pipeline's YAML; one that can match no table is refused when it is read."""


Patterns = TypeVar("Patterns", list[str], dict[str, Any])


def few(patterns: Patterns) -> Patterns:
    """The patterns of a setting; raises ValueError for more of them than are matched in a short time."""
    check_patterns(patterns)
    return patterns


TablePatterns = Annotated[list[TablePattern], AfterValidator(few)]


def _once_each(columns: list[str]) -> list[str]:
    for number, name in enumerate(columns):
        if name.lower() in (other.lower() for other in columns[:number]):
            raise ValueError(f"column {name!r} stands there twice")
    return columns


KeyColumns = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1), AfterValidator(_once_each)]
"""Names of columns, in the order in which the key has them; case does not count."""
KeySettings = Annotated[dict[TablePattern, KeyColumns], AfterValidator(few)]
"""Of two patterns that take a table the first counts."""


def _checked_condition(sql: str) -> str:
    from changefeed.settings.sql_condition import predicate_of  # sqlglot is only for those who need it

    predicate_of(sql)
    return sql


def _few_conditions(conditions: Any) -> Any:
    """Counted before the first is read: each takes a parser half a millisecond, at every look at the pipeline."""
    if isinstance(conditions, dict) and len(conditions) > _MOST_CONDITIONS:
        raise ValueError(
            f"has {len(conditions)} conditions: wanted at most {_MOST_CONDITIONS}. Take tables of one condition "
            "together, as in shop.orders_*"
        )
    return conditions


_MOST_CONDITIONS = 1000
RowSettings = Annotated[
    dict[TablePattern, Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_checked_condition)]],
    BeforeValidator(_few_conditions),
    AfterValidator(few),
]
"""Conditions in SQL; of two patterns that take a table the first counts."""
