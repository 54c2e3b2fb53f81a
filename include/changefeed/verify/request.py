"""What a person asks for: which tables, how many of their rows, and for how long to wait."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError

from changefeed.errors import did_you_mean
from changefeed.pipelines.section import Section, mistakes_in
from changefeed.pipelines.table_pattern import TablePattern

WAIT_SECONDS = 900
"""Three runs of a pipeline with the default schedule."""


class VerifyRequest(Section):
    """A comparison of a pipeline's topics with the rows of its source, or of a follower."""

    tables: Annotated[list[Annotated[TablePattern, Field(max_length=1000)]], Field(max_length=10_000)] = Field(
        default=[]
    )
    """Patterns of "database.table" among those that the pipeline captures; all tables where the list is empty."""
    sample_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """So many of the chunks are read, chosen at random."""
    follower: Annotated[str, Field(max_length=250)] = ""
    """Connection id of a follower, whose rows are compared in place of the source's."""
    wait_seconds: Annotated[int, Field(ge=0, le=86_400)] = WAIT_SECONDS
    """For the pipeline's own runs to publish what the source had."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> VerifyRequest:
        """From a form's values, of which None is not given. Raises SettingsError, a line a mistake."""
        try:
            return cls.model_validate({name: value for name, value in values.items() if value is not None})
        except ValidationError as error:
            raise mistakes_in("verify", error, lambda key: did_you_mean(key, cls.model_fields)) from None
