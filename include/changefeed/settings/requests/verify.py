"""Request of verify: tables, sample, follower, and how long to wait."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from changefeed.settings.requests.request import Request, Tables

WAIT_SECONDS = 900
"""Three runs of a pipeline that has the default schedule."""


class VerifyRequest(Request):
    """A comparison of a pipeline's topics with the rows of its source or of a follower."""

    ACTION: ClassVar[str] = "verify"

    tables: Tables = Field(default=[])
    sample_percent: int = Field(
        default=100,
        ge=1,
        le=100,
        title="Sample",
        description="Percent of the chunks that are read, chosen at random. A sample does not prove that all rows are "
        "equal.",
    )
    follower: Annotated[str, Field(max_length=250)] | None = Field(
        default=None,
        title="Rows of",
        description="Connection id of a follower whose rows are compared. Default: the source's rows.",
    )
    wait_seconds: int = Field(
        default=WAIT_SECONDS,
        ge=0,
        le=86_400,
        title="Wait for runs",
        description="Maximum seconds to wait for the pipeline's own runs to publish the changes that were read.",
    )
    deep: bool = Field(
        default=False,
        title="Deep",
        description="Also read each topic as a consumer, and check that the records of each key form a chain.",
    )
