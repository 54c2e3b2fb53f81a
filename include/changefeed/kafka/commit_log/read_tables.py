"""What the commit log says to followers of snapshots: how their tables are made, and which are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from changefeed.kafka.commit_log.records import LogRecord


@dataclass(frozen=True)
class TableReadRecord(LogRecord, kind="table_read"):
    """That snapshot ``snapshot`` reads all rows of ``table``, DATABASE.TABLE, for followers that do not have it yet.

    At ``at`` the statements ``create_database`` and ``create_table`` make the table, which has a primary key where
    ``keyed``. ``rows`` are in ``topic`` when all are, None before. Of a table with a key ``at`` is where the pipeline's
    published changes ended before any row was read. Of one without it is the same, until its rows are there: from then
    on it is the one view that they were read in. A table without ``create_table`` is gone since, and has no rows.
    ``until`` is where the pipeline's published changes ended when all rows were in ``topic``, and ``reach`` where the
    last changes end for which rows were left out: '' where that is not known.
    """

    table: str
    snapshot: str
    at: str
    create_database: str
    create_table: str
    keyed: bool
    topic: str
    rows: int | None = None
    until: str = ""
    reach: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether a follower can make the table: one without a key is made with all of its rows."""
        return self.keyed or self.rows is not None

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.table,)

    def to_json(self) -> Any:
        return {name: value for name, value in vars(self).items() if name != "table"}

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        known = {name: given for name, given in value.items() if name in cls.__dataclass_fields__}
        return cls(**{**known, "table": str(parts[0])})


@dataclass(frozen=True)
class AllReadRecord(LogRecord, kind="all_read"):
    """That a snapshot reads all tables of the pipeline that there are at ``at``, where its published changes ended.

    ``databases`` are those of its tables, and others that may have some: by name the statement that makes each.
    """

    at: str
    databases: Mapping[str, str]

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return {"at": self.at, "databases": dict(self.databases)}

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(value["at"], value["databases"])
