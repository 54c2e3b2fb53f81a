"""A seek: where a pipeline's checkpoint shall go, and why."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.settings.requests.request import Coordinates, Place, Request


class SeekRequest(Request):
    """A checkpoint that shall move. A plan, which moves nothing, needs no ``why``."""

    ACTION: ClassVar[str] = "seek"

    to: Place = Field(
        title="To", description="earliest, latest, FILE:POSITION, a GTID set, or a time (2026-01-31T12:00:00Z)."
    )
    why: str = Field(default="", max_length=2000, title="Why", description="The reason, kept in the record of seeks.")
    expected: Coordinates | None = Field(
        default=None,
        title="From",
        description="FILE:POSITION where the checkpoint is; the seek is refused if it is elsewhere. Default: anywhere.",
    )
    finish: bool = Field(
        default=False,
        title="Finish what is unfinished first",
        description="Publish and commit what an earlier run left unfinished before the checkpoint moves. Otherwise it "
        "is given up, and what of it is in Kafka may come twice.",
    )
