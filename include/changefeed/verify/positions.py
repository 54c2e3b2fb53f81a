"""How far the topics of a pipeline, its source and a follower are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import orjson

from changefeed.errors import SettingsError, SourceUnavailableError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.windows import settled_state
from changefeed.settings.requests.verify import WAIT_SECONDS
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import head

Published = Callable[[BinlogCoordinates], None]
"""Returns when the topics have all changes before some coordinates of the source."""

_STANDING = (
    "SELECT server_uuid, coordinates, databases_followed FROM `changefeed`.`followed` "
    "WHERE pipeline = CONVERT(%s USING utf8mb4) COLLATE utf8mb4_bin"
)
_THERE = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'changefeed' AND table_name = 'followed'"


@dataclass(frozen=True)
class Standing:
    """All changes of the source ``server_uuid`` before ``coordinates`` are applied; of ``databases``, or of all."""

    server_uuid: str
    coordinates: BinlogCoordinates
    databases: tuple[str, ...]

    def follows(self, database: str) -> bool:
        """Whether the database's changes are applied."""
        return not self.databases or database in self.databases


def standing(session: Session, pipeline: str) -> Standing:
    """Where the follower at ``session`` stands; raises SettingsError where it follows no pipeline of that name."""
    (there,) = session.row(_THERE)
    rows = session.rows(_STANDING, pipeline) if there else []
    if not rows:
        raise SettingsError(
            f"the server at {session.connection.host}:{session.connection.port} is no follower of pipeline "
            f"{pipeline!r}: wanted its position in the table changefeed.followed, which `changefeed replicate "
            f"{pipeline}` makes"
        )
    uuid, coordinates, databases = rows[0]
    return Standing(str(uuid), BinlogCoordinates.parse(str(coordinates)), tuple(orjson.loads(databases)))


class Positions(Protocol):
    """Where along the source's binlog a server stands."""

    def now(self, session: Session) -> BinlogCoordinates:
        """All changes before it are seen by a SELECT that begins now, at the latest SETTLING_SECONDS later."""
        ...


class SourcePositions:
    """The source's own: the head of its binlog."""

    def now(self, session: Session) -> BinlogCoordinates:
        """The head."""
        return head(session).coordinates


class FollowerPositions:
    """`Positions` of a follower of ``pipeline``."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline

    def now(self, session: Session) -> BinlogCoordinates:
        """How far it has come."""
        return standing(session, self._pipeline).coordinates


_LOOK_SECONDS = 2.0


def published_up_to(connections: PipelineConnections) -> BinlogCoordinates | None:
    """Where the last sealed window of the pipeline ends, or a later seek led to: the topics have all changes before it,
    or get none of them any more. None without either."""
    state = settled_state(connections)
    last = max(state.seals, default=0)
    at = state.seals[last].window.head if last else None
    if (sought := max(state.seeks, default=0)) > last:
        to = BinlogCoordinates.parse(state.seeks[sought].to)
        return to if at is None or at.base != to.base else max(at, to)
    return at


def check_has_run(connections: PipelineConnections) -> None:
    """Raises SettingsError where the pipeline has published nothing yet: there is nothing to compare."""
    if published_up_to(connections) is None:
        name = connections.pipeline.name
        raise SettingsError(
            f"pipeline {name!r} has sealed no window yet, so that its topics have nothing to compare: run it first "
            f"(`changefeed run {name}`, or its DAG), or have `changefeed verify {name} --run` do so"
        )


def wait_for_runs(connections: PipelineConnections, seconds: float = WAIT_SECONDS) -> Published:
    """Waits until a run of the pipeline has sealed a window that ends behind the coordinates.

    It raises SourceUnavailableError after ``seconds``: the pipeline's runs are not its own to start.
    """

    def wait(until: BinlogCoordinates) -> None:
        deadline = time.monotonic() + seconds
        while True:
            at = published_up_to(connections)
            if at is not None and at.base == until.base and at >= until:
                return
            if time.monotonic() > deadline:
                name, so_far = connections.pipeline.name, f"up to {at}" if at else "nothing"
                raise SourceUnavailableError(
                    f"rows were read of the source up to {until}, and pipeline {name!r} has published {so_far}: in "
                    f"{seconds:g} seconds no run of it came so far, and before that they cannot be compared. Is its "
                    "ingest DAG paused, or does it fail? Run the pipeline and verify again; "
                    f"`changefeed verify {name} --run` runs it itself."
                )
            time.sleep(_LOOK_SECONDS)

    return wait
