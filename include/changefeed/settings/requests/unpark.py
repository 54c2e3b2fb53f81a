"""Request of the return of parked tables."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from changefeed.model.table_pattern import matches
from changefeed.settings.requests.request import Request, Tables


class UnparkRequest(Request):
    """The parked tables that return, and whether their missing changes are published."""

    ACTION: ClassVar[str] = "unpark"

    tables: Tables = Field(default=[])
    skip_changes: bool = Field(
        default=False,
        title="Skip changes",
        description="Give up the missing changes: the tables return at the checkpoint, and a snapshot then publishes "
        "their rows.",
    )

    def matches(self, name: str) -> bool:
        """Whether the parked table ``name``, "database.table", is requested."""
        return not self.tables or any(matches(pattern, *name.split(".", 1)) for pattern in self.tables)
