"""A run of a pipeline: what it takes at most."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.settings.requests.request import Coordinates, Count, Request
from changefeed.settings.section import Positive


class RunBounds(Request):
    """Bounds of one run; without any it takes all that is new, up to the pipeline's own bounds."""

    ACTION: ClassVar[str] = "run"

    max_bytes: Positive | None = Field(
        default=None,
        title="At most so many bytes",
        description="Most bytes of binlog that the run takes; it ends at the commit before. Default: no limit.",
    )
    max_seconds: Count | None = Field(
        default=None,
        title="At most so many seconds",
        description="Seconds after which no further window of a long backlog is begun. Default: no limit.",
    )
    until: Coordinates | None = Field(
        default=None,
        title="Until",
        description="FILE:POSITION that the run does not go past; a commit boundary. Default: the head.",
    )
