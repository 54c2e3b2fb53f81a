"""Progress of snapshots in the commit log, for resuming a stopped snapshot.

A chunk is published in one Kafka transaction, together with its `ChunkRecord`: it is in Kafka completely or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from changefeed.kafka.commit_log.records import LogRecord, Note
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.key_range import ALL_ROWS, Boundary, KeyRange


@dataclass(frozen=True)
class PlannedChunk:
    """A range of a table's rows with a number. A chunk that is read again gets a new number, because its rows may have
    changed. ``has_key`` is false for a table without a primary key, which has only one chunk."""

    number: int
    database: str
    table: str
    within: KeyRange = ALL_ROWS
    has_key: bool = True

    @property
    def table_name(self) -> str:
        """Its table, as DATABASE.TABLE."""
        return f"{self.database}.{self.table}"

    def to_json(self) -> list[Any]:
        """Plain values, for `of`."""
        return [self.number, self.database, self.table, self.within.after, self.within.upto, self.has_key]

    @classmethod
    def of(cls, values: Sequence[Any]) -> PlannedChunk:
        """The chunk of the values that `to_json` returned."""
        number, database, table, after, upto, has_key = values
        return cls(number, database, table, KeyRange(_boundary(after), _boundary(upto)), has_key)


@dataclass(frozen=True)
class TableView:
    """The one read view of a table without a key. ``at`` (FILE:POSITION) is its position; the statements
    ``create_database`` and ``create_table`` create the table as it was there."""

    at: str
    create_database: str
    create_table: str

    def to_json(self) -> list[str]:
        """Plain values, for `of`."""
        return [self.at, self.create_database, self.create_table]

    @classmethod
    def of(cls, values: Sequence[Any] | None) -> TableView | None:
        """The view of the values that `to_json` returned; None for None."""
        return cls(*map(str, values)) if values else None


@dataclass(frozen=True)
class DefinitionsRead:
    """A search of the binlog that found no DDL statement that changed the table since its published rows were read. It
    ended at ``at`` (FILE:POSITION on server ``server_uuid``, with ``gtids`` executed)."""

    server_uuid: str
    at: str
    gtids: str

    @property
    def coordinates(self) -> BinlogCoordinates:
        """``at``."""
        return BinlogCoordinates.parse(self.at)

    def to_json(self) -> list[str]:
        """Plain values, for `of`."""
        return [self.server_uuid, self.at, self.gtids]

    @classmethod
    def of(cls, values: Sequence[Any] | None) -> DefinitionsRead | None:
        """The search of the values that `to_json` returned; None for None."""
        return cls(*map(str, values)) if values else None


@dataclass(frozen=True)
class TableProgress:
    """The progress of a snapshot in one table.

    - ``at`` is a boundary: the rows up to it are published or in a chunk of the latest round. ``at_end`` says that
      these are all rows.
    - ``key`` is the primary key at the start; '' for none.
    - ``estimated_rows`` and ``row_bytes`` (of one row) are the server's estimates.
    - ``rows`` is the number of rows read, ``chunks`` the number of chunks. ``left_out`` of the rows were not published,
      because a window publishes a change of their key.
    - ``view`` is the read view of a table without a key.
    - ``definitions`` is set for a partly published table: the end of the search for DDL in the binlog.
    - ``gone`` is set for a table that is left out because it was missing: the end of the binlog (FILE:POSITION) at that
      time.
    """

    database: str
    table: str
    key: str
    estimated_rows: int
    at: Boundary | None = None
    at_end: bool = False
    rows: int = 0
    left_out: int = 0
    chunks: int = 0
    row_bytes: int = 0
    view: TableView | None = None
    definitions: DefinitionsRead | None = None
    gone: str = ""

    @property
    def name(self) -> str:
        """As DATABASE.TABLE."""
        return f"{self.database}.{self.table}"

    def anew(self) -> TableProgress:
        """The table with its reading reset to the beginning. The counts of published rows stay, because followers count
        these rows."""
        return replace(self, at=None, at_end=False, definitions=None, gone="")

    def with_chunk(self, chunk: ChunkRecord) -> TableProgress:
        """The table after the publication of a chunk."""
        return replace(
            self,
            rows=self.rows + chunk.rows,
            left_out=self.left_out + chunk.left_out,
            chunks=self.chunks + 1,
            view=chunk.view,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TableProgress:
        """The progress of the values that `to_json` returned."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        read = {
            "at": _boundary(values["at"]),
            "view": TableView.of(values.get("view")),
            "definitions": DefinitionsRead.of(values.get("definitions")),
        }
        return cls(**{**known, **read})

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`."""
        own = {"view": self.view and self.view.to_json()}
        return {**vars(self), **own, "definitions": self.definitions and self.definitions.to_json()}


@dataclass(frozen=True)
class ChunkRecord(LogRecord, kind="snapshot_chunk"):
    """A published chunk; written in the transaction of its rows. ``rows`` is the number of rows read; ``left_out`` of
    them were not published. ``view`` is the read view of a table without a key."""

    number: int
    table: str
    rows: int
    left_out: int
    view: TableView | None = None

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.number,)

    def to_json(self) -> Any:
        return [self.table, self.rows, self.left_out, *([self.view.to_json()] if self.view else [])]

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        return cls(int(parts[0]), str(value[0]), int(value[1]), int(value[2]), *map(TableView.of, value[3:4]))


@dataclass(frozen=True)
class PauseRecord(Note, kind="snapshot_pause"):
    """A snapshot is paused until this record is forgotten."""

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return {}

    @classmethod
    def from_json(cls, _parts: Sequence[Any], _value: Any, /) -> Self:
        return cls()


@dataclass(frozen=True)
class SnapshotRecord(LogRecord, kind="snapshot"):
    """A snapshot: its request, its ``tables``, and ``round``, the latest chunks, published or not.

    ``number`` is the number of the next chunk. ``rules`` are digests of the settings that it was begun with
    (`settings.message_rules`). ``began_ms`` is its start, ``seconds`` its working time. A ``finished`` snapshot has
    published all of its tables.
    """

    request: Mapping[str, Any]
    rules: Mapping[str, str]
    tables: tuple[TableProgress, ...]
    began_ms: int
    number: int = 0
    round: tuple[PlannedChunk, ...] = ()
    seconds: float = 0.0
    finished: bool = False
    bounds: str = ""
    """The encrypted boundaries of ``tables`` and ``round``, which then have no boundaries of their own; '' without
    encryption. See `snapshot.hidden_bounds`."""

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return {
            "request": dict(self.request),
            "rules": dict(self.rules),
            (_UNBOUND_TABLES if self.bounds else "tables"): [table.to_json() for table in self.tables],
            "began_ms": self.began_ms,
            "number": self.number,
            "round": [chunk.to_json() for chunk in self.round],
            "seconds": round(self.seconds, 3),
            "finished": self.finished,
        } | ({"bounds": self.bounds} if self.bounds else {})

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(
            request=value["request"],
            rules=value["rules"],
            tables=tuple(map(TableProgress.from_json, value[_UNBOUND_TABLES if "bounds" in value else "tables"])),
            began_ms=int(value["began_ms"]),
            number=int(value["number"]),
            round=tuple(map(PlannedChunk.of, value["round"])),
            seconds=float(value["seconds"]),
            finished=bool(value["finished"]),
            bounds=str(value.get("bounds", "")),
        )

    def with_chunks(self, published: Iterable[ChunkRecord]) -> SnapshotRecord:
        """The snapshot after its round. The chunks ``published`` are in Kafka; the other chunks of the round are read
        again."""
        there = {chunk.number: chunk for chunk in published}
        tables = {table.name: table for table in self.tables}
        for chunk in self.round:
            if chunk.number in there:
                name = chunk.table_name
                tables[name] = tables[name].with_chunk(there[chunk.number])
        left = tuple(chunk for chunk in self.round if chunk.number not in there)
        return replace(self, tables=tuple(tables.values()), round=left)

    def with_table(self, table: TableProgress) -> SnapshotRecord:
        """The snapshot with ``table`` in place of its table of the same name."""
        return replace(self, tables=tuple(table if each.name == table.name else each for each in self.tables))

    def anew(self, names: Collection[str]) -> SnapshotRecord:
        """The snapshot with the reading of the tables ``names`` reset to their beginning."""
        left = tuple(chunk for chunk in self.round if chunk.table_name not in names)
        tables = tuple(table.anew() if table.name in names else table for table in self.tables)
        return replace(self, tables=tables, round=left)

    def without(self, table: TableProgress, at: BinlogCoordinates) -> SnapshotRecord:
        """The snapshot without ``table``, which was missing when the binlog ended at ``at``."""
        left = tuple(chunk for chunk in self.round if chunk.table_name != table.name)
        return replace(self, round=left).with_table(replace(table.anew(), at_end=True, gone=str(at)))

    @property
    def is_done(self) -> bool:
        """Whether everything is published; for a snapshot that `with_chunks` returned."""
        return not self.round and all(table.at_end for table in self.tables)


_UNBOUND_TABLES = "unbound_tables"
"""Field name in place of `tables` if boundaries are encrypted. An older version of changefeed then stops, because it
misses `tables`."""


def _boundary(values: Sequence[Any] | None) -> Boundary | None:
    return None if values is None else tuple(map(str, values))
