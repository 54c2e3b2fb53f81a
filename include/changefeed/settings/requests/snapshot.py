"""Request of a snapshot: tables, a condition on rows, and limits."""

from __future__ import annotations

import hashlib
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from changefeed.model.table_pattern import matches_any
from changefeed.settings.requests.request import Count, PipelineRequest, Request, Tables


def _check_condition(text: str) -> str:
    from changefeed.settings.sql_condition import parse_server_condition  # loads sqlglot

    parse_server_condition(text)
    return text


class SnapshotForm(Request):
    """The tables whose existing rows are published besides the pipeline's windows, a condition on rows, and limits."""

    ACTION: ClassVar[str] = "snapshot"

    tables: Tables = Field(default=[])
    where: Annotated[str, AfterValidator(_check_condition), Field(max_length=10_000)] | None = Field(
        default=None,
        title="Where",
        description="Condition on rows, such as id > 1000 AND status = 'open'. Default: all rows.",
    )
    rows_per_second: Count | None = Field(
        default=None,
        title="Maximum rows per second",
        description="Maximum rows that are read per second, on average. Default: no limit.",
    )
    connections: Annotated[int, Field(gt=0, lt=2**15)] | None = Field(
        default=None,
        title="Maximum connections",
        description="Maximum connections that read rows at the same time. Default: the number of Spark's cores.",
    )
    chunk_rows: Count | None = Field(
        default=None,
        title="Maximum rows of a chunk",
        description="Maximum rows of a chunk, the unit of publishing. Default: chosen by the time that chunks take.",
    )
    changed_keys: Count | None = Field(
        default=None,
        title="Maximum changed keys",
        description="Maximum number of unpublished changed keys held in memory. Default: 1,000,000.",
    )


class SnapshotRequest(SnapshotForm, PipelineRequest):
    """A snapshot of one pipeline."""

    def matches(self, database: str, table: str) -> bool:
        """Whether the table is requested."""
        return not self.tables or matches_any(tuple(self.tables), database, table)

    @property
    def condition(self) -> str:
        """SQL condition of the requested rows; '' for all."""
        return self._of_server[0]

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of the columns in the condition."""
        return self._of_server[1]

    @property
    def _of_server(self) -> tuple[str, tuple[str, ...]]:
        if self.where is None:
            return "", ()
        from changefeed.settings.sql_condition import parse_server_condition

        condition = parse_server_condition(self.where)
        return condition.sql, condition.columns

    @property
    def fingerprint(self) -> str:
        """A digest that distinguishes requests with the same run id by tables and rows. It does not depend on limits or
        on the pipeline's name."""
        return hashlib.sha256(self.model_dump_json(include={"tables", "where"}).encode()).hexdigest()[:12]
