"""How far a snapshot has come: what the commit log keeps of it, so that it goes on where it was stopped.

A chunk is published in one Kafka transaction, together with its `ChunkRecord`: it is in Kafka whole, or not at all.
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
    """A stretch of a table under a number. One that has to be read again gets another number, as its rows may be
    others by then. ``has_key`` is false for a table without a primary key, which is one chunk."""

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
        """What `to_json` gave."""
        number, database, table, after, upto, has_key = values
        return cls(number, database, table, KeyRange(_boundary(after), _boundary(upto)), has_key)


@dataclass(frozen=True)
class TableView:
    """The one view that a table without a key was read in: ``at`` (FILE:POSITION) it stands, and there the statements
    ``create_database`` and ``create_table`` make the table."""

    at: str
    create_database: str
    create_table: str

    def to_json(self) -> list[str]:
        """Plain values, for `of`."""
        return [self.at, self.create_database, self.create_table]

    @classmethod
    def of(cls, values: Sequence[Any] | None) -> TableView | None:
        """What `to_json` gave; None of nothing."""
        return cls(*map(str, values)) if values else None


@dataclass(frozen=True)
class DefinitionsRead:
    """No statement of the binlog before ``at`` (FILE:POSITION on server ``server_uuid``, where ``gtids`` are executed)
    gave a table other rows since those of it that are published were read."""

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
        """What `to_json` gave; None of nothing."""
        return cls(*map(str, values)) if values else None


@dataclass(frozen=True)
class TableProgress:
    """A table of a snapshot: all of it up to the boundary ``at`` is published, or in a chunk of the latest round;
    ``at_end`` says that this is all of it.

    ``key`` says what the primary key was, '' for none. ``estimated_rows``, of ``row_bytes`` each, are the server's
    guess. ``rows`` were read, in ``chunks``, of which ``left_out`` were not published, as a window publishes a change
    of their key. ``view`` is that of a table without a key that is read. ``definitions`` of a table of which some rows
    are published say how far the binlog was searched for statements that give it others. A table that is ``gone`` was
    not there any more when the binlog ended at that place (FILE:POSITION): it is left out.
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
        """The table, to be read from its beginning again. What it published stays counted, as followers count it."""
        return replace(self, at=None, at_end=False, definitions=None, gone="")

    def with_chunk(self, chunk: ChunkRecord) -> TableProgress:
        """The table with a chunk of it that was published."""
        return replace(
            self,
            rows=self.rows + chunk.rows,
            left_out=self.left_out + chunk.left_out,
            chunks=self.chunks + 1,
            view=chunk.view,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TableProgress:
        """What `to_json` gave."""
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
    """That a chunk is published; written in the transaction of its rows. ``rows`` were read, of which ``left_out`` were
    not published. ``view`` is that of a table without a key."""

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
    """That a snapshot is paused, until this is forgotten."""

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
    """A snapshot: what was asked for, its ``tables``, and ``round``, the chunks that were published last or are to be.

    ``number`` is that of the next chunk. ``rules`` are digests of the settings that it was begun with
    (`settings.message_rules`). ``began_ms`` is when, ``seconds`` how long it was at work. A snapshot that is
    ``finished`` has published all of its tables.
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
    """Where not '', all boundaries of ``tables`` and ``round``, encrypted: those are without theirs. See
    `snapshot.hidden_bounds`."""

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
        """The snapshot behind its round, of which ``published`` is in Kafka: what is not is left to be read again."""
        there = {chunk.number: chunk for chunk in published}
        tables = {table.name: table for table in self.tables}
        for chunk in self.round:
            if chunk.number in there:
                name = chunk.table_name
                tables[name] = tables[name].with_chunk(there[chunk.number])
        left = tuple(chunk for chunk in self.round if chunk.number not in there)
        return replace(self, tables=tuple(tables.values()), round=left)

    def with_table(self, table: TableProgress) -> SnapshotRecord:
        """The snapshot with ``table`` in place of the one of its name."""
        return replace(self, tables=tuple(table if each.name == table.name else each for each in self.tables))

    def anew(self, names: Collection[str]) -> SnapshotRecord:
        """The snapshot with the tables of these ``names`` to be read from their beginning again."""
        left = tuple(chunk for chunk in self.round if chunk.table_name not in names)
        tables = tuple(table.anew() if table.name in names else table for table in self.tables)
        return replace(self, tables=tables, round=left)

    def without(self, table: TableProgress, at: BinlogCoordinates) -> SnapshotRecord:
        """The snapshot with ``table`` left out: it was gone when the binlog ended ``at``."""
        left = tuple(chunk for chunk in self.round if chunk.table_name != table.name)
        return replace(self, round=left).with_table(replace(table.anew(), at_end=True, gone=str(at)))

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be published, for a snapshot `with_chunks`."""
        return not self.round and all(table.at_end for table in self.tables)


_UNBOUND_TABLES = "unbound_tables"
"""In place of `tables` where their boundaries are encrypted: a version that would miss those stops."""


def _boundary(values: Sequence[Any] | None) -> Boundary | None:
    return None if values is None else tuple(map(str, values))
