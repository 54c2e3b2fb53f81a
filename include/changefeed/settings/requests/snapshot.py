"""A snapshot: which tables of a pipeline, which of their rows, and how fast."""

from __future__ import annotations

import hashlib
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from changefeed.model.table_pattern import matches_any
from changefeed.settings.requests.request import Count, OfPipeline, Request, Tables


def _is_condition(text: str) -> str:
    from changefeed.settings.sql_condition import server_condition  # sqlglot is only for those who need it

    server_condition(text)
    return text


class SnapshotForm(Request):
    """The tables whose rows are read and published beside the pipeline's windows, which of their rows, and how fast."""

    ACTION: ClassVar[str] = "snapshot"

    tables: Tables = Field(default=[])
    where: Annotated[str, AfterValidator(_is_condition), Field(max_length=10_000)] | None = Field(
        default=None,
        title="Where",
        description="Only rows for which this is true, as in id > 1000 AND status = 'open'. Default: all rows.",
    )
    rows_per_second: Count | None = Field(
        default=None,
        title="At most so many rows a second",
        description="Most rows that are read in a second, on average. Default: no limit.",
    )
    connections: Annotated[int, Field(gt=0, lt=2**15)] | None = Field(
        default=None,
        title="At most so many connections",
        description="Most connections that read rows at the same time. Default: as many as Spark has cores.",
    )
    chunk_rows: Count | None = Field(
        default=None,
        title="At most so many rows in a chunk",
        description="Most rows of a chunk, which is published at once. Its size follows the time that it takes.",
    )
    changed_keys: Count | None = Field(
        default=None,
        title="At most so many changed keys",
        description="Most keys held in memory of rows whose changes no window has published yet. Default: a million.",
    )


class SnapshotRequest(SnapshotForm, OfPipeline):
    """A snapshot of one pipeline."""

    def takes(self, database: str, table: str) -> bool:
        """Whether the table is one of those that were asked for."""
        return not self.tables or matches_any(tuple(self.tables), database, table)

    @property
    def condition(self) -> str:
        """SQL of the rows that were asked for; '' for all."""
        return self._of_server[0]

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of the columns that the condition is about."""
        return self._of_server[1]

    @property
    def _of_server(self) -> tuple[str, tuple[str, ...]]:
        if self.where is None:
            return "", ()
        from changefeed.settings.sql_condition import server_condition

        condition = server_condition(self.where)
        return condition.sql, condition.columns

    @property
    def fingerprint(self) -> str:
        """Tells what is published from what other requests of the pipeline under the same run id would be; not how
        fast, nor what the pipeline is called."""
        return hashlib.sha256(self.model_dump_json(include={"tables", "where"}).encode()).hexdigest()[:12]
