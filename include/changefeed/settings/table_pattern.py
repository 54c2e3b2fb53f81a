"""Types of settings that are set by pattern of tables: key columns, and conditions on rows."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from changefeed.model.table_pattern import check_pattern, check_patterns, is_regex


def _check_table_pattern(pattern: str) -> str:
    check_pattern(pattern)
    if not is_regex(pattern) and "." not in pattern:
        raise ValueError(
            f"{pattern!r} names no database: expected DATABASE.TABLE, as in shop.* or *.orders, or a regular "
            "expression "
            r"between slashes, as in '/shop\.orders_\d+/'"
        )
    return pattern


TablePattern = Annotated[str, AfterValidator(_check_table_pattern)]
"""A pattern in a pipeline's YAML; a pattern that can match no table is refused."""


Patterns = TypeVar("Patterns", list[str], dict[str, Any])


def check_pattern_count(patterns: Patterns) -> Patterns:
    """Return ``patterns``; raises ValueError if there are too many to match in a short time."""
    check_patterns(patterns)
    return patterns


TablePatterns = Annotated[list[TablePattern], AfterValidator(check_pattern_count)]


def _check_unique(columns: list[str]) -> list[str]:
    for number, name in enumerate(columns):
        if name.lower() in (other.lower() for other in columns[:number]):
            raise ValueError(f"column {name!r} is repeated")
    return columns


KeyColumns = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1), AfterValidator(_check_unique)]
"""Names of columns in the order of the key; case is ignored."""
KeySettings = Annotated[dict[TablePattern, KeyColumns], AfterValidator(check_pattern_count)]
"""Key columns by pattern; the first pattern that matches a table counts."""


def _check_condition(sql: str) -> str:
    from changefeed.settings.sql_condition import parse_predicate  # loads sqlglot

    parse_predicate(sql)
    return sql


def _check_condition_count(conditions: Any) -> Any:
    """Return ``conditions``; raises ValueError if there are too many. Each one takes half a millisecond to parse, each
    time that the pipeline is read."""
    if isinstance(conditions, dict) and len(conditions) > _MAX_CONDITIONS:
        raise ValueError(
            f"expected at most {_MAX_CONDITIONS} conditions, found {len(conditions)}. Use one pattern for several "
            "tables, as in shop.orders_*"
        )
    return conditions


_MAX_CONDITIONS = 1000
RowSettings = Annotated[
    dict[TablePattern, Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_check_condition)]],
    BeforeValidator(_check_condition_count),
    AfterValidator(check_pattern_count),
]
"""Conditions in SQL by pattern; the first pattern that matches a table counts."""
