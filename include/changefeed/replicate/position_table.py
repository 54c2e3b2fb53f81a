"""How far a follower has come, kept in itself: the position moves in the transaction of the rows that it speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from changefeed.errors import CheckpointError, FollowerError
from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.fill_state import FillState
from changefeed.replicate.literals import literal
from changefeed.source.mysql.catalog import engine_of
from changefeed.source.mysql.follower_session import FollowerSession

DATABASE = "changefeed"
"""Where followers keep their positions; the source's own database of that name cannot be followed."""

_TABLE = f"`{DATABASE}`.followed"
_CREATE = f"""
CREATE TABLE IF NOT EXISTS {_TABLE} (
  pipeline VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
  server_uuid CHAR(36) CHARACTER SET ascii NOT NULL,
  coordinates VARCHAR(300) CHARACTER SET utf8mb4 NOT NULL,
  databases_followed TEXT CHARACTER SET utf8mb4 NOT NULL,
  offsets MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL,
  definition LONGTEXT CHARACTER SET utf8mb4 NULL,
  filling LONGTEXT CHARACTER SET utf8mb4 NULL
) ENGINE=InnoDB
"""


@dataclass(frozen=True)
class BegunDefinition:
    """A definition that was about to run: whether it did is told by the tables, compared with ``before``."""

    record: str
    """The value of its record."""
    before: str
    """Digest of what the statement's tables were (`definitions.state_of`)."""


@dataclass(frozen=True)
class FollowerPosition:
    """All changes of ``server_uuid`` before ``coordinates`` are applied, and none behind them.

    ``offsets`` are where to read on; what lies before them is applied. ``definition`` is one that was begun and of
    which it is not noted that it was done. ``fill`` says which tables snapshots fill.
    """

    pipeline: str
    server_uuid: str
    coordinates: BinlogCoordinates
    databases: tuple[str, ...]
    offsets: Mapping[TopicPartition, int]
    definition: BegunDefinition | None = None
    fill: FillState = field(default_factory=FillState)


class PositionTable:
    """The position of ``pipeline`` in one follower. Raises as `FollowerSession` does."""

    def __init__(self, session: FollowerSession, pipeline: str) -> None:
        self._session, self._pipeline = session, pipeline

    def load(self) -> FollowerPosition | None:
        """The position; None before the first run. The table is made where it is missing.
        Raises FollowerError where its engine cannot roll back.

        It is read with a lock: a commit of an earlier run that is still under way comes first.
        """
        self._session.write(f"CREATE DATABASE IF NOT EXISTS `{DATABASE}`")
        self._session.write(_CREATE)
        engine = engine_of(self._session, DATABASE, "followed")
        if not engine.rolls_back:
            raise FollowerError(
                f"expected {_TABLE} of the follower in an engine with transactions, found {engine.name}: the position "
                "would move without the rows that it speaks of. Nothing was applied. ALTER TABLE changefeed.followed "
                "ENGINE = InnoDB on the follower, and run again."
            )
        rows = self._session.rows(
            "SELECT server_uuid, coordinates, databases_followed, offsets, definition, filling "
            f"FROM {_TABLE} WHERE pipeline = %s FOR UPDATE",
            self._pipeline,
        )
        if not rows:
            return None
        uuid, coordinates, databases, offsets, definition, filling = rows[0]
        return FollowerPosition(
            self._pipeline,
            str(uuid),
            BinlogCoordinates.parse(str(coordinates)),
            tuple(orjson.loads(databases)),
            {(topic, partition): offset for topic, partition, offset in orjson.loads(offsets)},
            BegunDefinition(**orjson.loads(definition)) if definition else None,
            FillState.of(filling),
        )

    def begin(self, position: FollowerPosition) -> None:
        """Note the first position."""
        values = {
            "pipeline": self._pipeline,
            "server_uuid": position.server_uuid,
            "coordinates": str(position.coordinates),
            "databases_followed": _text(list(position.databases)),
            "offsets": _offsets(position.offsets),
            "filling": position.fill.to_text(),
        }
        listed = ", ".join(map(literal, values.values()))
        self._session.write(f"INSERT INTO {_TABLE} ({', '.join(values)}) VALUES ({listed})")

    def move(
        self,
        position: FollowerPosition,
        to: BinlogCoordinates,
        offsets: Mapping[TopicPartition, int] | None = None,
        definition: BegunDefinition | None = None,
        fill: FillState | None = None,
    ) -> FollowerPosition:
        """Move from ``position``, in the transaction that is open, or in one of its own; return the new position.

        Raises CheckpointError where the follower is not at ``position`` any more: another run moved it.
        """
        changes = {"coordinates": str(to), "definition": _text(vars(definition)) if definition else None}
        if offsets is not None:
            changes["offsets"] = _offsets(offsets)
        if fill is not None:
            changes["filling"] = fill.to_text()
        listed = ", ".join(f"{name} = {literal(value)}" for name, value in changes.items())
        at = literal(_text(vars(position.definition))) if position.definition else None
        was = f"definition = {at}" if at else "definition IS NULL"
        written = self._session.write(
            f"UPDATE {_TABLE} SET {listed} WHERE pipeline = {literal(self._pipeline)} "
            f"AND coordinates = {literal(str(position.coordinates))} AND {was}"
        )
        stays = (str(to), definition, fill or position.fill) == (
            str(position.coordinates), position.definition, position.fill
        )  # fmt: skip
        if not written and not stays:
            raise CheckpointError(
                f"the follower was at {position.coordinates} when this run read its position, and is not any more: "
                "another run applies the same changes. Nothing of this one was kept behind that."
            )
        moved = replace(position, coordinates=to, definition=definition, fill=fill or position.fill)
        return moved if offsets is None else replace(moved, offsets=dict(offsets))


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return _text([[topic, partition, offset] for (topic, partition), offset in sorted(offsets.items())])
