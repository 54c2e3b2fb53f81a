"""The tables of a follower that snapshots fill, and their progress. The follower stores them with its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Self

import orjson

from changefeed.kafka.commit_log.read_tables import TableReadRecord
from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates


class FillStage(StrEnum):
    """The progress of a table that a snapshot fills."""

    BEGUN = "begun"
    """A run began to create the table; it is not known whether the table exists."""
    FILLING = "filling"
    """The table exists. Rows may be missing, until the run applies their changes or the snapshot's rows."""
    COMPLETE = "whole"  # as stored in followers
    """The table has all rows."""


@dataclass(frozen=True)
class TableFill:
    """A table that was created at ``at`` (FILE:POSITION), and has ``rows`` rows of ``snapshot``. Stored as JSON.

    - ``announced``: the name in the snapshot's announcement, DATABASE.TABLE.
    - ``renamed_at``: the position of the first rename, or ''. Rows that the snapshot read under the announced name
      after it may belong to another table.
    """

    snapshot: str
    at: str
    announced: str
    stage: FillStage = FillStage.BEGUN
    rows: int = 0
    renamed_at: str = ""

    def with_rename(self, at: BinlogCoordinates) -> TableFill:
        """The fill after a rename at ``at``. Only the first rename is stored."""
        return replace(self, renamed_at=self.renamed_at or str(at))

    def is_complete_at(self, record: TableReadRecord, position: BinlogCoordinates) -> bool:
        """Whether the table has all rows at ``position``, according to the latest ``record`` of its announced name.

        It has them if all rows that the snapshot published are applied, and all changes for which it left out rows.
        """
        if record.snapshot != self.snapshot or record.rows is None or self.rows < record.rows:
            return False
        if record.reach and BinlogCoordinates.parse(record.reach) > position:
            return False
        if not self.renamed_at:
            return True
        return bool(record.until) and BinlogCoordinates.parse(record.until) <= BinlogCoordinates.parse(self.renamed_at)


@dataclass(frozen=True)
class FillState:
    """The ``tables`` that snapshots fill or have filled, by DATABASE.TABLE.

    - ``reads``: by partition, the offset before which rows of snapshots are applied or skipped.
    - ``awaits_snapshot``: the follower began empty, the pipeline did not publish the DDL of its tables, and no snapshot
      of all tables has created them yet. Changes of missing tables are skipped.
    - ``missing``: the tables whose changes were skipped, and that no snapshot has created yet.
    """

    awaits_snapshot: bool = False
    tables: Mapping[str, TableFill] = field(default_factory=dict)
    reads: Mapping[TopicPartition, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()

    def with_table(self, name: str, fill: TableFill) -> FillState:
        """The state with ``fill`` for the table ``name``."""
        return replace(self, tables={**self.tables, name: fill})

    def without(self, name: str) -> FillState:
        """The state without the table ``name``, which was dropped."""
        tables = {other: fill for other, fill in self.tables.items() if other != name}
        return replace(self, tables=tables, missing=self.missing - {name})

    def with_renamed_table(self, old: str, new: str, at: BinlogCoordinates) -> FillState:
        """The state with ``old`` renamed to ``new`` at ``at``. An earlier table with the name ``new`` is removed."""
        fill, is_missing = self.tables.get(old), old in self.missing
        state = self.without(old).without(new)
        if fill is not None:
            state = state.with_table(new, fill.with_rename(at))
        return replace(state, missing=state.missing | {new}) if is_missing else state

    @property
    def unfilled(self) -> Mapping[str, TableFill]:
        """The tables whose rows are not complete."""
        return {name: fill for name, fill in self.tables.items() if fill.stage is not FillStage.COMPLETE}

    def to_text(self) -> str:
        """The state as JSON; `of` parses it."""
        tables = {name: asdict(fill) for name, fill in self.tables.items()}
        reads = [[*partition, offset] for partition, offset in sorted(self.reads.items())]
        values = {"awaits": self.awaits_snapshot, "tables": tables, "reads": reads, "lacking": sorted(self.missing)}
        return orjson.dumps(values).decode()

    @classmethod
    def of(cls, text: str | None) -> Self:
        """The state from the text of `to_text`. None is the text of a follower that no snapshot fills."""
        if text is None:
            return cls()
        values = orjson.loads(text)
        tables = {
            name: TableFill(**{**fill, "stage": FillStage(fill["stage"])}) for name, fill in values["tables"].items()
        }
        reads = {(topic, partition): offset for topic, partition, offset in values["reads"]}
        return cls(values["awaits"], tables, reads, frozenset(values["lacking"]))
