"""A follower that is brought to the pipeline's low watermark."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.settings.pipeline_settings import FollowerSettings
from changefeed.settings.requests.request import Coordinates, Request


class ReplicateRequest(FollowerSettings, Request):
    """A follower, as a pipeline's YAML names it or the command, and where its first run begins."""

    ACTION: ClassVar[str] = "replicate"

    start: Coordinates | None = Field(
        default=None,
        title="Start",
        description="Of its first run: FILE:POSITION where it was copied. Default: where the pipeline begins.",
    )
