"""`rows` of a pipeline's YAML: which rows are published, by pattern of tables."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from changefeed.pipelines.table_pattern import TablePattern


def _checked(sql: str) -> str:
    from changefeed.pipelines.sql_condition import predicate_of  # sqlglot is only for those who need it

    predicate_of(sql)
    return sql


RowSettings = dict[TablePattern, Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_checked)]]
"""Conditions in SQL; of two patterns that take a table the first counts."""
