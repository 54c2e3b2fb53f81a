"""Where a follower stands: `replicate` keeps that in the follower itself, in the transaction of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import SettingsError
from changefeed.mysql.session import Session

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


class FollowerPositions:
    """`Positions` of a follower of ``pipeline``."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline

    def now(self, session: Session) -> BinlogCoordinates:
        """How far it has come."""
        return standing(session, self._pipeline).coordinates
