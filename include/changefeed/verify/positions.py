"""Reads the positions of a pipeline's topics, its source and a follower."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import orjson

from changefeed.errors import SettingsError, SourceUnavailableError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.windows import last_stable_state
from changefeed.settings.requests.verify import WAIT_SECONDS
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import head

WaitUntilPublished = Callable[[BinlogCoordinates], None]
"""A function that waits until the topics have all changes before the coordinates of the source that it gets."""

_POSITION = (
    "SELECT server_uuid, coordinates, databases_followed FROM `changefeed`.`followed` "
    "WHERE pipeline = CONVERT(%s USING utf8mb4) COLLATE utf8mb4_bin"
)
_TABLE_EXISTS = (
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'changefeed' AND table_name = 'followed'"
)


@dataclass(frozen=True)
class FollowerPosition:
    """A follower's position: it has applied all changes of source ``server_uuid`` before ``coordinates``.

    ``databases`` are the databases that it follows; () for all.
    """

    server_uuid: str
    coordinates: BinlogCoordinates
    databases: tuple[str, ...]

    def follows(self, database: str) -> bool:
        """Whether the follower applies changes of the database."""
        return not self.databases or database in self.databases


def read_follower_position(session: Session, pipeline: str) -> FollowerPosition:
    """The position of the follower at ``session``. Raises SettingsError if it does not follow ``pipeline``."""
    (there,) = session.row(_TABLE_EXISTS)
    rows = session.rows(_POSITION, pipeline) if there else []
    if not rows:
        raise SettingsError(
            f"expected the position of pipeline {pipeline!r} in table changefeed.followed of the server at "
            f"{session.connection.host}:{session.connection.port}, found none: the server does not follow this "
            f"pipeline. Run `changefeed replicate {pipeline}` first."
        )
    uuid, coordinates, databases = rows[0]
    return FollowerPosition(str(uuid), BinlogCoordinates.parse(str(coordinates)), tuple(orjson.loads(databases)))


class Positions(Protocol):
    """Reads a server's position in the source's binlog."""

    def now(self, session: Session) -> BinlogCoordinates:
        """The current position. A SELECT that begins VISIBILITY_SECONDS later sees all changes before this position."""
        ...


class SourcePositions:
    """`Positions` of the source: the head of its binlog."""

    def now(self, session: Session) -> BinlogCoordinates:
        """The head."""
        return head(session).coordinates


class FollowerPositions:
    """`Positions` of a follower of ``pipeline``."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline

    def now(self, session: Session) -> BinlogCoordinates:
        """The position up to which the follower has applied changes."""
        return read_follower_position(session, self._pipeline).coordinates


_LOOK_SECONDS = 2.0


def read_published_end(connections: PipelineConnections) -> BinlogCoordinates | None:
    """The end of the pipeline's last sealed window, or the target of a later seek; None if there is neither.

    The topics have all changes before it, except changes that a seek skipped.
    """
    state = last_stable_state(connections)
    last = max(state.seals, default=0)
    at = state.seals[last].window.head if last else None
    if (seek_window := max(state.seeks, default=0)) > last:
        to = BinlogCoordinates.parse(state.seeks[seek_window].to)
        return to if at is None or at.base != to.base else max(at, to)
    return at


def check_has_run(connections: PipelineConnections) -> None:
    """Raises SettingsError if the pipeline has published nothing yet."""
    if read_published_end(connections) is None:
        name = connections.pipeline.name
        raise SettingsError(
            f"pipeline {name!r} has sealed no window yet, so its topics have nothing to compare. Run it first "
            f"(`changefeed run {name}`, or its DAG), or use `changefeed verify {name} --run`"
        )


def wait_for_runs(connections: PipelineConnections, seconds: float = WAIT_SECONDS) -> WaitUntilPublished:
    """A function that waits until a run of the pipeline has sealed a window up to the coordinates that it gets.

    The function raises SourceUnavailableError after ``seconds``. It does not start a run itself.
    """

    def wait(until: BinlogCoordinates) -> None:
        deadline = time.monotonic() + seconds
        while True:
            at = read_published_end(connections)
            if at is not None and at.base == until.base and at >= until:
                return
            if time.monotonic() > deadline:
                name, so_far = connections.pipeline.name, f"up to {at}" if at else "nothing"
                raise SourceUnavailableError(
                    f"expected pipeline {name!r} to publish up to {until}, up to where rows of the source were read; "
                    f"after {seconds:g} seconds it has published {so_far}. Without the rest the rows cannot be "
                    "compared. Check whether its ingest DAG is paused or fails, run the pipeline and verify again; "
                    f"`changefeed verify {name} --run` runs the pipeline itself."
                )
            time.sleep(_LOOK_SECONDS)

    return wait
