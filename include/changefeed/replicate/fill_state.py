"""Which tables of a follower a snapshot fills, and how far: kept in the follower, beside its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Self

import orjson

from changefeed.kafka.commit_log.read_tables import TableReadRecord
from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates


class Stage(StrEnum):
    """How far the filling of a table is."""

    BEGUN = "begun"
    """It is being made: whether it is there is not known."""
    FILLING = "filling"
    """It is there; rows may be missing, of which changes say what they are now."""
    WHOLE = "whole"
    """It has all rows."""


@dataclass(frozen=True)
class TableFill:
    """A table that was made at ``at`` (FILE:POSITION), for ``snapshot`` to fill, which has given ``rows`` to it.

    The snapshot announced it as ``announced``, DATABASE.TABLE. ``renamed_at`` is where it was called otherwise first:
    what the snapshot read under that name from there on may be of another table.
    """

    snapshot: str
    at: str
    announced: str
    stage: Stage = Stage.BEGUN
    rows: int = 0
    renamed_at: str = ""

    def renamed(self, at: BinlogCoordinates) -> TableFill:
        """The table with another name, from ``at`` on."""
        return replace(self, renamed_at=self.renamed_at or str(at))

    def is_whole_by(self, record: TableReadRecord, position: BinlogCoordinates) -> bool:
        """Whether no rows are missing at ``position``, by the latest ``record`` of what it was announced as: those that
        the snapshot read are there, and those that it left to windows."""
        if record.snapshot != self.snapshot or record.rows is None or self.rows < record.rows:
            return False
        if record.reach and BinlogCoordinates.parse(record.reach) > position:
            return False
        if not self.renamed_at:
            return True
        return bool(record.until) and BinlogCoordinates.parse(record.until) <= BinlogCoordinates.parse(self.renamed_at)


@dataclass(frozen=True)
class FillState:
    """The ``tables`` that snapshots fill, or filled, by DATABASE.TABLE.

    Of a partition rows of snapshots before its offset in ``reads`` are applied, or are not to be. ``awaits`` says that
    the follower began empty, with a pipeline that did not publish how its tables were made, and that no snapshot of all
    tables has made them yet: what it lacks it is not given. ``lacking`` are tables of which it was not given something,
    and which no snapshot has made yet.
    """

    awaits: bool = False
    tables: Mapping[str, TableFill] = field(default_factory=dict)
    reads: Mapping[TopicPartition, int] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()

    def with_table(self, name: str, fill: TableFill) -> FillState:
        """With ``fill`` in place of what it was."""
        return replace(self, tables={**self.tables, name: fill})

    def without(self, name: str) -> FillState:
        """Without a table that is gone."""
        tables = {other: fill for other, fill in self.tables.items() if other != name}
        return replace(self, tables=tables, lacking=self.lacking - {name})

    def renamed(self, old: str, new: str, at: BinlogCoordinates) -> FillState:
        """With another name for a table, from ``at`` on; one that had it is gone."""
        fill, is_lacking = self.tables.get(old), old in self.lacking
        state = self.without(old).without(new)
        if fill is not None:
            state = state.with_table(new, fill.renamed(at))
        return replace(state, lacking=state.lacking | {new}) if is_lacking else state

    @property
    def unfilled(self) -> Mapping[str, TableFill]:
        """The tables that have not all rows yet."""
        return {name: fill for name, fill in self.tables.items() if fill.stage is not Stage.WHOLE}

    def to_text(self) -> str:
        """As JSON, for `of`."""
        tables = {name: asdict(fill) for name, fill in self.tables.items()}
        reads = [[*partition, offset] for partition, offset in sorted(self.reads.items())]
        values = {"awaits": self.awaits, "tables": tables, "reads": reads, "lacking": sorted(self.lacking)}
        return orjson.dumps(values).decode()

    @classmethod
    def of(cls, text: str | None) -> Self:
        """What `to_text` gave; a follower that no snapshot fills has none."""
        if text is None:
            return cls()
        values = orjson.loads(text)
        tables = {name: TableFill(**{**fill, "stage": Stage(fill["stage"])}) for name, fill in values["tables"].items()}
        reads = {(topic, partition): offset for topic, partition, offset in values["reads"]}
        return cls(values["awaits"], tables, reads, frozenset(values["lacking"]))
