"""Followers of a pipeline: servers that its changes are applied to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from changefeed.errors import SettingsError, did_you_mean
from changefeed.pipelines.section import ConnectionId, Section

SESSIONS = 2
"""That write to a follower at the same time, where nothing else is said."""


class OnStatement(StrEnum):
    """What a follower does about changes in statement format."""

    REFUSE = "refuse"
    RUN = "run"
    """Run those that are safe; triggers and stored functions of the source take no part in them."""


class FollowerSettings(Section):
    """A second server, which is kept as the source is."""

    connection: ConnectionId
    """Connection id of the follower."""
    databases: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(default=[])
    """The databases that it follows; all that the pipeline captures where there are none."""
    sessions: int = Field(default=SESSIONS, ge=1, le=16)
    """How many connections write its rows at the same time; they commit in the source's order."""
    statements: OnStatement = OnStatement.REFUSE
    """What becomes of changes in statement format."""


def follower_of(followers: Sequence[FollowerSettings], connection: str) -> FollowerSettings:
    """The one of ``followers`` whose connection id that is; raises SettingsError where there is none."""
    known = {follower.connection: follower for follower in followers}
    if connection not in known:
        raise SettingsError(
            f"the pipeline has no follower {connection!r}{did_you_mean(connection, known)}: its `followers` are "
            f"{', '.join(known) or 'none'}"
        )
    return known[connection]
