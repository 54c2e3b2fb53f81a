"""Request of a backfill, which publishes a range of the binlog again, independently of the pipeline's windows."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from changefeed.errors import SettingsError
from changefeed.model.iso_time import seconds_of
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.settings.requests.request import (
    Coordinates,
    FileName,
    GtidText,
    PipelineRequest,
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
"""The forms of a range: fields that are set together."""


def _check_url(url: str) -> str:
    try:
        check_no_secret(url)
    except SettingsError as error:
        raise ValueError(str(error)) from None
    return url


class BackfillForm(Request):
    """A range in one of four forms, the tables, and the suffix of the topics."""

    ACTION: ClassVar[str] = "backfill"

    from_file: FileName | None = Field(
        default=None, title="From file", description="First binlog file, such as binlog.000012."
    )
    to_file: FileName | None = Field(
        default=None, title="To file", description="Last binlog file, included. Default: the first file."
    )
    from_coordinates: Coordinates | None = Field(
        default=None,
        title="From coordinates",
        description="Start of the range: FILE:POSITION, a commit boundary.",
    )
    to_coordinates: Coordinates | None = Field(
        default=None,
        title="To coordinates",
        description="End of the range, not included: FILE:POSITION, a commit boundary.",
    )
    gtids: GtidText | None = Field(
        default=None, title="GTIDs", description="GTID set: the shortest range that contains all of it."
    )
    from_time: Time | None = Field(
        default=None,
        title="From time",
        description="Start of the range: the first transaction at or after this time (2026-01-31T12:00:00Z).",
    )
    to_time: Time | None = Field(
        default=None, title="To time", description="End of the range, not included: a time. Default: now."
    )
    tables: Tables = Field(default=[])
    suffix: str = Field(
        default=".replay",
        pattern=r"^(\.[a-zA-Z0-9._-]{1,60})?$",
        title="Suffix of the topics",
        description="Suffix of topic names: with .replay shop.orders is published to shop.orders.replay. Empty: the "
        "live topics.",
    )
    archive: Annotated[str, AfterValidator(_check_url)] | None = Field(
        default=None,
        title="Archived files",
        description="Folder or URL with the output of mysqlbinlog --raw, readable by Spark's workers, without user, "
        "password and query. Default: the server's own files.",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_one_range(cls, values: Any) -> Any:
        if isinstance(values, dict):
            given = [", ".join(form) for form in RANGES if any(values.get(name) for name in form)]
            if len(given) != 1:
                forms = " and ".join(given) or "none"
                raise ValueError(f"expected one range (files, coordinates, gtids or times), found {forms}")
        return values

    @model_validator(mode="after")
    def _check_range_complete(self) -> Self:
        if self.to_file and not self.from_file:
            raise ValueError("to_file needs from_file")
        if bool(self.from_coordinates) != bool(self.to_coordinates):
            raise ValueError("expected both from_coordinates and to_coordinates")
        if self.to_time and not self.from_time:
            raise ValueError("to_time needs from_time")
        if self.from_time and self.to_time and seconds_of(self.from_time) >= seconds_of(self.to_time):
            raise ValueError(f"from_time {self.from_time} is not before to_time {self.to_time}")
        return self


class BackfillRequest(BackfillForm, PipelineRequest):
    """A backfill of one pipeline."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """As `Request.of`, but an empty suffix is not missing: it means the live topics."""
        emptied = {"suffix": ""} if "suffix" in values and not values["suffix"] else {}
        return super().of({**values, **emptied})

    @property
    def fingerprint(self) -> str:
        """A digest that distinguishes requests with the same run id; it does not depend on the pipeline's name."""
        return hashlib.sha256(self.model_dump_json(exclude={"pipeline"}).encode()).hexdigest()[:12]


class NarrowedTables(TableSettings):
    """Tables that match both these patterns and the patterns of ``within``."""

    within: TableSettings

    def matches(self, database: str, table: str) -> bool:
        """Whether the backfill publishes the table."""
        return super().matches(database, table) and self.within.matches(database, table)

    def names_database(self, database: str) -> bool:
        """Whether the backfill may publish tables of the database."""
        return super().names_database(database) and self.within.names_database(database)


def backfill_pipeline(pipeline: Pipeline, request: BackfillRequest) -> Pipeline:
    """The pipeline with the tables and topics of the backfill."""
    captured = pipeline.tables
    tables = NarrowedTables(include=request.tables or captured.include, exclude=captured.exclude, within=captured)
    return pipeline.model_copy(update={"tables": tables, "topics": pipeline.topics.with_suffix(request.suffix)})
