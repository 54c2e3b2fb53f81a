"""A backfill: a part of the binlog published again, beside the pipeline's own windows."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from changefeed.archive.url import check_no_secret
from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import SettingsError
from changefeed.gtid import GtidSet
from changefeed.pipelines.pipeline import Pipeline, TableSettings
from changefeed.pipelines.section import Section, mistakes_in
from changefeed.pipelines.table_pattern import TablePattern
from changefeed.run_identity import run_identity
from changefeed.seek import seconds_of

Short = Annotated[str, Field(max_length=1000)]
"""A name, coordinates or a time."""
GtidText = Annotated[str, Field(max_length=1_000_000)]
TablePatterns = Annotated[list[Annotated[TablePattern, Field(max_length=1000)]], Field(max_length=10_000)]

_SUFFIX = r"^(\.[a-zA-Z0-9._-]{1,60})?$"


class BackfillRequest(Section):
    """What a person asks for: a range in one of four forms, the tables, and where the messages go."""

    pipeline: str
    from_file: Short | None = None
    to_file: Short | None = None
    """First and last binlog file, both included."""
    from_coordinates: Short | None = None
    to_coordinates: Short | None = None
    """FILE:POSITION, the end not included."""
    gtids: GtidText | None = None
    """A GTID set: the shortest range that holds all its transactions."""
    from_time: Short | None = None
    to_time: Short | None = None
    """ISO 8601, the end not included."""
    tables: TablePatterns = Field(default=[])
    """Patterns of "database.table" among those that the pipeline captures; all tables where the list is empty."""
    suffix: Annotated[str, Field(pattern=_SUFFIX)] = ".replay"
    """What the topics' names end in; nothing means the live topics."""
    archive: str | None = None
    """Folder or URL of archived files; without one, the server is read."""

    @field_validator("archive")
    @classmethod
    def _holds_no_secret(cls, url: str | None) -> str | None:
        try:
            check_no_secret(url or "")
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return url

    @model_validator(mode="after")
    def _one_range(self) -> BackfillRequest:
        given = [
            form
            for form, values in (
                ("from_file, to_file", (self.from_file, self.to_file)),
                ("from_coordinates, to_coordinates", (self.from_coordinates, self.to_coordinates)),
                ("gtids", (self.gtids,)),
                ("from_time, to_time", (self.from_time, self.to_time)),
            )
            if any(values)
        ]
        if len(given) != 1:
            forms = " and ".join(given) if given else "none"
            raise ValueError(f"wanted one range (files, coordinates, gtids or times), found {forms}")
        if self.to_file and not self.from_file:
            raise ValueError("to_file needs from_file")
        if self.from_file:
            for name in filter(None, (self.from_file, self.to_file)):
                BinlogCoordinates(name, 4)
        for text in filter(None, (self.from_coordinates, self.to_coordinates)):
            BinlogCoordinates.parse(text)
        if bool(self.from_coordinates) != bool(self.to_coordinates):
            raise ValueError("wanted both from_coordinates and to_coordinates")
        if self.gtids:
            GtidSet.parse(self.gtids)
        if (self.to_time is not None) and self.from_time is None:
            raise ValueError("to_time needs from_time")
        times = [seconds_of(text) for text in filter(None, (self.from_time, self.to_time))]
        if len(times) == 2 and times[0] >= times[1]:
            raise ValueError(f"from_time {self.from_time} is not before to_time {self.to_time}")
        return self

    @property
    def fingerprint(self) -> str:
        """Tells this request from others that are made under the same run id."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]

    @classmethod
    def of(cls, values: dict[str, Any]) -> BackfillRequest:
        """From a form's values, of which None and '' are not given. Raises SettingsError, a line a mistake."""
        given = {name: value for name, value in values.items() if value not in (None, "")}
        if "suffix" in values:
            given["suffix"] = values["suffix"] or ""  # emptied on purpose: the live topics
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise mistakes_in("backfill", error, lambda _: f"; valid: {', '.join(cls.model_fields)}") from None


class NarrowedTables(TableSettings):
    """Tables that match these patterns and those of ``within`` as well."""

    within: TableSettings

    def matches(self, database: str, table: str) -> bool:
        """Whether the backfill publishes the table."""
        return super().matches(database, table) and self.within.matches(database, table)


def backfill_pipeline(pipeline: Pipeline, request: BackfillRequest) -> Pipeline:
    """The pipeline that a backfill runs as: fewer tables, other topics."""
    tables = NarrowedTables(include=request.tables or ["*.*"], within=pipeline.tables)
    return pipeline.model_copy(update={"tables": tables, "topics": pipeline.topics.with_suffix(request.suffix)})


def backfill_identity(pipeline: str, run: str) -> str:
    """Whose progress a backfill's is; see `run_identity`."""
    return run_identity(pipeline, "backfill", run)
