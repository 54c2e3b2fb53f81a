"""Request of a run: its limits."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.settings.requests.request import Coordinates, Count, Request
from changefeed.settings.section import Positive


class RunBounds(Request):
    """Limits of one run, in addition to the pipeline's own. Default: all new changes."""

    ACTION: ClassVar[str] = "run"

    max_bytes: Positive | None = Field(
        default=None,
        title="Maximum bytes",
        description="Maximum bytes of binlog; the run ends at the last commit before the limit. Default: no limit.",
    )
    max_seconds: Count | None = Field(
        default=None,
        title="Maximum seconds",
        description="Seconds after which the run begins no further window. Default: no limit.",
    )
    until: Coordinates | None = Field(
        default=None,
        title="Until",
        description="FILE:POSITION at which the run ends, a commit boundary. Default: the head.",
    )

    @property
    def stops_at_a_position(self) -> bool:
        """Whether the run ends at a position of the binlog; then it is not continuous."""
        return self.max_bytes is not None or self.until is not None
