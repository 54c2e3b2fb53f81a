"""Bodies of requests. Nothing unknown passes."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from changefeed.upkeep.backfill_request import BackfillRequest


class Body(BaseModel):
    """The body of a request: a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class PipelineBody(Body):
    """A pipeline's file."""

    yaml: Annotated[str, Field(min_length=1, max_length=200_000, examples=["name: shop\nsource: …"])]


class RunBody(Body):
    """Bounds of one run."""

    max_bytes: Annotated[int, Field(gt=0)] | None = None
    max_seconds: Annotated[int, Field(gt=0)] | None = None
    until: Annotated[str, Field(pattern=r"^.+\.\d{6,}:\d+$")] | None = None


class SeekBody(Body):
    """Where to: earliest, latest, FILE:POSITION, a GTID set, or a time."""

    to: Annotated[str, Field(min_length=1, max_length=60_000)]
    why: Annotated[str, Field(max_length=2000)] = ""
    expected: str | None = None
    """Where the caller saw the checkpoint; refused when it moved."""
    finish: bool = False
    """Publish and commit what an earlier run left unfinished before the checkpoint moves, instead of giving it up."""


class BackfillBody(Body):
    """A range in one of four forms, the tables, and where the messages go."""

    from_file: str | None = None
    to_file: str | None = None
    from_coordinates: str | None = None
    to_coordinates: str | None = None
    gtids: str | None = None
    from_time: str | None = None
    to_time: str | None = None
    tables: list[str] = []
    suffix: str = ".replay"
    archive: str | None = None

    def request(self, pipeline: str) -> BackfillRequest:
        """The backfill that is asked for."""
        return BackfillRequest.of({"pipeline": pipeline, **self.model_dump()})
