"""Request of a seek: the new position of the checkpoint, and the reason."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.settings.requests.request import Coordinates, Request, Target


class SeekRequest(Request):
    """A seek. A plan, which moves nothing, needs no ``why``."""

    ACTION: ClassVar[str] = "seek"

    to: Target = Field(
        title="To",
        description="New position: earliest, latest, FILE:POSITION, a GTID set, or a time (2026-01-31T12:00:00Z).",
    )
    why: str = Field(
        default="", max_length=2000, title="Why", description="Reason, which is stored in the record of seeks."
    )
    expected: Coordinates | None = Field(
        default=None,
        title="From",
        description="Expected checkpoint, FILE:POSITION; if the checkpoint is elsewhere, the seek is refused. A "
        "continuous run moves it: then only a seek forward that would repeat changes is refused. Default: any.",
    )
    finish: bool = Field(
        default=False,
        title="Finish open windows first",
        description="Publish and commit the windows that earlier runs left unfinished before the checkpoint moves. "
        "Otherwise they are given up, and messages of them that are in Kafka may be repeated.",
    )
