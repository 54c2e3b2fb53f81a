"""A backfill: a part of the binlog published again, beside the pipeline's own windows."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from changefeed.errors import SettingsError
from changefeed.model.seek import seconds_of
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.settings.requests.request import (
    Coordinates,
    FileName,
    GtidText,
    OfPipeline,
    Request,
    Tables,
    Time,
)
from changefeed.source.archive.archive import check_no_secret

RANGES = (
    ("from_file", "to_file"),
    ("from_coordinates", "to_coordinates"),
    ("gtids",),
    ("from_time", "to_time"),
)
"""The forms of a range: fields that are given together."""


def _without_secret(url: str) -> str:
    try:
        check_no_secret(url)
    except SettingsError as error:
        raise ValueError(str(error)) from None
    return url


class BackfillForm(Request):
    """A range in one of four forms, the tables, and where the messages go."""

    ACTION: ClassVar[str] = "backfill"

    from_file: FileName | None = Field(
        default=None, title="From file", description="First binlog file, as in binlog.000012."
    )
    to_file: FileName | None = Field(
        default=None, title="To file", description="Last binlog file, included. Default: the first one."
    )
    from_coordinates: Coordinates | None = Field(
        default=None,
        title="From coordinates",
        description="FILE:POSITION where the range begins; a commit boundary.",
    )
    to_coordinates: Coordinates | None = Field(
        default=None,
        title="To coordinates",
        description="FILE:POSITION where the range ends, not included; a commit boundary.",
    )
    gtids: GtidText | None = Field(
        default=None, title="GTIDs", description="The shortest range that holds all of this GTID set."
    )
    from_time: Time | None = Field(
        default=None,
        title="From time",
        description="First transaction written then or later (2026-01-31T12:00:00Z).",
    )
    to_time: Time | None = Field(
        default=None, title="To time", description="Time where the range ends, not included. Default: now."
    )
    tables: Tables = Field(default=[])
    suffix: str = Field(
        default=".replay",
        pattern=r"^(\.[a-zA-Z0-9._-]{1,60})?$",
        title="Suffix of the topics",
        description="What the topics' names end in: .replay publishes shop.orders to shop.orders.replay. Empty: the "
        "live topics.",
    )
    archive: Annotated[str, AfterValidator(_without_secret)] | None = Field(
        default=None,
        title="Archived files",
        description="Folder or URL with mysqlbinlog --raw output, which Spark's workers can read; without a user, a "
        "password or a query. Default: the server's own files.",
    )

    @model_validator(mode="before")
    @classmethod
    def _has_one_range(cls, values: Any) -> Any:
        if isinstance(values, dict):
            given = [", ".join(form) for form in RANGES if any(values.get(name) for name in form)]
            if len(given) != 1:
                forms = " and ".join(given) or "none"
                raise ValueError(f"wanted one range (files, coordinates, gtids or times), found {forms}")
        return values

    @model_validator(mode="after")
    def _range_is_whole(self) -> Self:
        if self.to_file and not self.from_file:
            raise ValueError("to_file needs from_file")
        if bool(self.from_coordinates) != bool(self.to_coordinates):
            raise ValueError("wanted both from_coordinates and to_coordinates")
        if self.to_time and not self.from_time:
            raise ValueError("to_time needs from_time")
        if self.from_time and self.to_time and seconds_of(self.from_time) >= seconds_of(self.to_time):
            raise ValueError(f"from_time {self.from_time} is not before to_time {self.to_time}")
        return self


class BackfillRequest(BackfillForm, OfPipeline):
    """A backfill of one pipeline."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """As of all requests; but a suffix that was emptied is meant so: the live topics."""
        emptied = {"suffix": ""} if "suffix" in values and not values["suffix"] else {}
        return super().of({**values, **emptied})

    @property
    def fingerprint(self) -> str:
        """Tells this request from others of its pipeline, whatever that is called, under the same run id."""
        return hashlib.sha256(self.model_dump_json(exclude={"pipeline"}).encode()).hexdigest()[:12]


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
