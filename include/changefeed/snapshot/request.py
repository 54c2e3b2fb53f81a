"""What a person asks of a snapshot: which tables of a pipeline, which of their rows, and how fast."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from changefeed.pipelines.section import Positive, Section, mistakes_in
from changefeed.pipelines.table_pattern import TablePattern, matches_any
from changefeed.run_identity import run_identity

TablePatterns = Annotated[list[Annotated[TablePattern, Field(max_length=1000)]], Field(max_length=10_000)]


class SnapshotRequest(Section):
    """The tables whose rows are read and published beside the pipeline's windows, to their own topics."""

    pipeline: str
    tables: TablePatterns = Field(default=[])
    """Patterns of "database.table" among those that the pipeline captures; all tables where the list is empty."""
    where: Annotated[str, Field(max_length=10_000)] | None = None
    """Only rows for which this condition is true, by the server: columns, constants, AND, OR, NOT, IN, BETWEEN."""
    rows_per_second: Positive | None = None
    """Not more than that are read, on average."""
    connections: Positive | None = None
    """Not more than so many tables or chunks are read at the same time; without it as many as Spark has cores."""

    chunk_rows: Positive | None = None
    """Not more rows than that in a chunk, whose size follows the time that it takes."""

    changed_keys: Positive | None = None
    """Of rows that changed and whose changes the pipeline has not published yet, not more keys are held in memory."""

    @field_validator("where")
    @classmethod
    def _is_condition(cls, text: str | None) -> str | None:
        if text is not None:
            from changefeed.pipelines.sql_condition import server_condition  # sqlglot is only for those who need it

            server_condition(text)
        return text

    def takes(self, database: str, table: str) -> bool:
        """Whether the table is one of those that were asked for."""
        return not self.tables or matches_any(tuple(self.tables), database, table)

    @property
    def condition(self) -> str:
        """SQL of the rows that were asked for; '' for all."""
        if self.where is None:
            return ""
        from changefeed.pipelines.sql_condition import server_condition

        return server_condition(self.where).sql

    @property
    def fingerprint(self) -> str:
        """Tells what is published from what other requests under the same run id would be; not how fast."""
        return hashlib.sha256(self.model_dump_json(include={"pipeline", "tables", "where"}).encode()).hexdigest()[:12]

    @classmethod
    def of(cls, values: dict[str, Any]) -> SnapshotRequest:
        """From a form's values, of which None and '' are not given. Raises SettingsError, a line a mistake."""
        given = {name: value for name, value in values.items() if value not in (None, "")}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise mistakes_in("snapshot", error, lambda _: f"; valid: {', '.join(cls.model_fields)}") from None


def snapshot_identity(pipeline: str, run: str) -> str:
    """Whose progress a snapshot's is; see `run_identity`."""
    return run_identity(pipeline, "snapshot", run)
