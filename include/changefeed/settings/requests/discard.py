"""Request to discard dead letters, and the reason."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.settings.requests.request import Request


class DiscardRequest(Request):
    """A discard of dead letters. A plan, which deletes nothing, needs no ``why``."""

    ACTION: ClassVar[str] = "discard"

    up_to: dict[int, int] = Field(
        default={},
        max_length=10_000,
        title="Up to",
        description="By partition of the dead-letter topic, the offset of the last dead letter to delete. All older "
        "ones of the partition are deleted with it. Without it a plan is of all that are there; a discard needs it.",
    )
    why: str = Field(
        default="", max_length=2000, title="Why", description="Reason, which is stored in the record of discards."
    )
