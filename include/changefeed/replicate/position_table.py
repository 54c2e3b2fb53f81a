"""Stores a follower's position in the follower. The position moves in the same transaction as the rows before it."""

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
"""The database in which followers store their positions. A source's database of this name cannot be followed."""

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
class BegunDdl:
    """A DDL statement that a run began. It took effect if the digest of its tables differs from ``before``."""

    record: str
    """The value of the DDL record."""
    before: str
    """The digest of the tables before the statement (`ddl_record.digest_tables`)."""


@dataclass(frozen=True)
class FollowerPosition:
    """A follower's position: all changes of ``server_uuid`` before ``coordinates`` are applied, and none after them.

    - ``databases``: the databases that are followed; () for all.
    - ``offsets``: by partition, the offset before which all records are applied.
    - ``begun_ddl``: a DDL statement that an earlier run began, and that it may not have finished.
    - ``fill``: the tables that snapshots fill.
    """

    pipeline: str
    server_uuid: str
    coordinates: BinlogCoordinates
    databases: tuple[str, ...]
    offsets: Mapping[TopicPartition, int]
    begun_ddl: BegunDdl | None = None
    fill: FillState = field(default_factory=FillState)


class PositionTable:
    """Reads and moves the position of ``pipeline`` in one follower. Raises what `FollowerSession` raises."""

    def __init__(self, session: FollowerSession, pipeline: str) -> None:
        self._session, self._pipeline = session, pipeline

    def load(self) -> FollowerPosition | None:
        """Read the position; None before the first run. Creates the table if it is missing.

        The read takes a lock. So if an earlier run is still committing, it waits for the end of that commit. Raises
        FollowerError if the table's engine cannot roll back.
        """
        self._session.write(f"CREATE DATABASE IF NOT EXISTS `{DATABASE}`")
        self._session.write(_CREATE)
        engine = engine_of(self._session, DATABASE, "followed")
        if not engine.rolls_back:
            raise FollowerError(
                f"expected {_TABLE} of the follower in an engine with transactions, found {engine.name}: the position "
                "would move although its rows are rolled back. Nothing was applied. ALTER TABLE changefeed.followed "
                "ENGINE = InnoDB on the follower, and run again."
            )
        rows = self._session.rows(
            "SELECT server_uuid, coordinates, databases_followed, offsets, definition, filling "
            f"FROM {_TABLE} WHERE pipeline = %s FOR UPDATE",
            self._pipeline,
        )
        if not rows:
            return None
        uuid, coordinates, databases, offsets, begun_ddl, filling = rows[0]
        return FollowerPosition(
            self._pipeline,
            str(uuid),
            BinlogCoordinates.parse(str(coordinates)),
            tuple(orjson.loads(databases)),
            {(topic, partition): offset for topic, partition, offset in orjson.loads(offsets)},
            BegunDdl(**orjson.loads(begun_ddl)) if begun_ddl else None,
            FillState.of(filling),
        )

    def begin(self, position: FollowerPosition) -> None:
        """Store the first position."""
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
        begun_ddl: BegunDdl | None = None,
        fill: FillState | None = None,
    ) -> FollowerPosition:
        """Move the position from ``position`` to ``to``, and return the new position.

        The move is part of the open transaction. Without one, it is a transaction of its own.

        Raises CheckpointError if the follower is not at ``position`` any more, because another run moved the position.
        """
        changes = {"coordinates": str(to), "definition": _text(vars(begun_ddl)) if begun_ddl else None}
        if offsets is not None:
            changes["offsets"] = _offsets(offsets)
        if fill is not None:
            changes["filling"] = fill.to_text()
        listed = ", ".join(f"{name} = {literal(value)}" for name, value in changes.items())
        at = literal(_text(vars(position.begun_ddl))) if position.begun_ddl else None
        was = f"definition = {at}" if at else "definition IS NULL"
        written = self._session.write(
            f"UPDATE {_TABLE} SET {listed} WHERE pipeline = {literal(self._pipeline)} "
            f"AND coordinates = {literal(str(position.coordinates))} AND {was}"
        )
        stays = (str(to), begun_ddl, fill or position.fill) == (
            str(position.coordinates), position.begun_ddl, position.fill
        )  # fmt: skip
        if not written and not stays:
            raise CheckpointError(
                f"the follower was at {position.coordinates} when this run read its position, and is not any more: "
                "another run applies the same changes. The open transaction of this run was rolled back."
            )
        moved = replace(position, coordinates=to, begun_ddl=begun_ddl, fill=fill or position.fill)
        return moved if offsets is None else replace(moved, offsets=dict(offsets))


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return _text([[topic, partition, offset] for (topic, partition), offset in sorted(offsets.items())])
