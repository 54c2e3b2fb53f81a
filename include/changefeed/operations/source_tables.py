"""Lists the tables of a server and their columns, for the choice of what a new pipeline publishes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from changefeed.errors import SettingsError
from changefeed.source.mysql.catalog import is_own
from changefeed.source.mysql.own_tables import NOT_OWN
from changefeed.source.mysql.session import Row, Session

MOST = 2000
"""The most tables that are listed."""

_TABLES = f"""
SELECT table_schema, table_name, table_type, COALESCE(table_rows, 0), COALESCE(data_length, 0), t.engine, e.transactions
FROM information_schema.tables AS t LEFT JOIN information_schema.engines AS e ON e.engine = t.engine
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND {NOT_OWN} ORDER BY 1, 2
"""
_KEYS = f"""
SELECT table_schema, table_name, column_name FROM information_schema.statistics
WHERE index_name = 'PRIMARY' AND {NOT_OWN} ORDER BY table_schema, table_name, seq_in_index
"""
_KEY = """
SELECT column_name FROM information_schema.statistics
WHERE index_name = 'PRIMARY' AND table_schema = %s AND table_name = %s
"""
_COLUMNS = """
SELECT column_name, data_type, column_type FROM information_schema.columns JOIN information_schema.tables AS t
USING (table_schema, table_name)
WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND table_schema = %s AND table_name = %s
ORDER BY ordinal_position
"""
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})


@dataclass(frozen=True)
class SourceTable:
    """A table of a server. ``rows`` and ``size_bytes`` are the server's estimates."""

    database: str
    table: str
    rows: int
    size_bytes: int
    key: tuple[str, ...]
    """The columns of its primary key; empty if it has none."""
    warnings: tuple[str, ...]
    """What is special if a pipeline captures it."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def source_tables(session: Session, most: int = MOST) -> tuple[list[SourceTable], bool]:
    """The tables that the session's user may see, without system tables, sorted by name; and whether there are more
    than ``most``, of which the first are returned."""
    keys: dict[tuple[str, str], list[str]] = {}
    for database, table, column in session.rows(_KEYS):
        keys.setdefault((str(database), str(table)), []).append(str(column))
    own = (row for row in session.rows(_TABLES) if not is_own(session, str(row[0]), str(row[1])))
    found = [_table_of(row, tuple(keys.get((str(row[0]), str(row[1])), ()))) for row in islice(own, most + 1)]
    return found[:most], len(found) > most


@dataclass(frozen=True)
class SourceColumn:
    """A column of a table."""

    name: str
    type: str
    in_key: bool
    """Whether it is in the primary key."""
    is_text: bool
    """Whether a mask may keep its first characters."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def source_columns(session: Session, database: str, table: str) -> list[SourceColumn]:
    """The columns of a table, in their order. Raises SettingsError if the session's user sees no such table."""
    rows = [] if is_own(session, database, table) else session.rows(_COLUMNS, database, table)
    if not rows:
        raise SettingsError(
            f"expected a table of {session.connection}, found {database}.{table}, which it does not have"
        )
    key = {str(name) for (name,) in session.rows(_KEY, database, table)}
    return [
        SourceColumn(str(name), str(full), str(name) in key, str(data_type).lower() in _TEXTS)
        for name, data_type, full in rows
    ]


def _table_of(row: Row, key: tuple[str, ...]) -> SourceTable:
    database, table, kind, rows, size, engine, transactions = row
    warnings = []
    if kind == "SEQUENCE":
        warnings.append("a sequence: the binlog has its changes as rows")
    elif not key:
        warnings.append("no primary key: its records have no key, unless `keys` or `keyless` gives them one")
        if engine is not None and transactions != "YES":
            warnings.append(f"a snapshot is refused: without a primary key, engine {engine} has no consistent reads")
    return SourceTable(str(database), str(table), int(rows), int(size), key, tuple(warnings))
