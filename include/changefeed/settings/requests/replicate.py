"""Request of replicate, which applies published changes to a follower."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.settings.pipeline_settings import FollowerSettings
from changefeed.settings.requests.request import Coordinates, Request


class ReplicateRequest(FollowerSettings, Request):
    """A follower, named by the pipeline's YAML or the command, and the start of its first run."""

    ACTION: ClassVar[str] = "replicate"

    start: Coordinates | None = Field(
        default=None,
        title="Start",
        description="Start of the first run: FILE:POSITION at which the follower was copied. Default: the pipeline's "
        "start.",
    )
