"""Records of snapshots for followers: the DDL of tables, and which tables are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from changefeed.kafka.commit_log.records import LogRecord


@dataclass(frozen=True)
class TableReadRecord(LogRecord, kind="table_read"):
    """Snapshot ``snapshot`` reads all rows of ``table``, DATABASE.TABLE, for followers that do not have it yet.

    - ``at`` is the end of the pipeline's published changes before any row was read. For a table without a key, after
      its rows are published, it is the position of the one read view.
    - ``create_database`` and ``create_table`` are statements that create the table as it was at ``at``. If
      ``create_table`` is empty, the table was removed and has no rows.
    - ``keyed`` says whether the table has a primary key.
    - ``rows`` is the number of rows in ``topic``; None until all rows are published.
    - ``until`` is the end of the published changes when all rows were in ``topic``; '' if not known.
    - ``reach`` is the end of the last changes for which rows were left out; '' if not known.
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
        """Whether a follower can create the table; a table without a key needs all of its rows."""
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
    """A snapshot reads all tables of the pipeline that exist at ``at``, the end of its published changes.

    ``databases`` has CREATE DATABASE statements by database name: for the databases of these tables, and for other
    databases that may have captured tables.
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
