"""Tables and columns as `information_schema` has them now."""

from __future__ import annotations

import re
from collections.abc import Callable

from changefeed.column_types import DATA_TYPES
from changefeed.errors import SourceError
from changefeed.mysql.session import Row, Session
from changefeed.table_schema import Column, TableSchema

SYSTEM_DATABASES = ("mysql", "sys", "information_schema", "performance_schema")

_COLUMNS = """
SELECT column_name, data_type, column_type, collation_name{srid}
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""
_TABLES = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
ORDER BY 1, 2
"""


def table_names(session: Session) -> list[tuple[str, str]]:
    """(database, table) of all base tables but the server's own."""
    return [(str(row[0]), str(row[1])) for row in session.rows(_TABLES)]


def table_schema(session: Session, database: str, table: str) -> TableSchema | None:
    """A table's columns and primary key as they are now, or None where there is no such table."""
    rows = session.rows(_COLUMNS.format(srid="" if session.is_mariadb else ", srs_id"), database, table)
    if not rows:
        return None
    columns = tuple(column_of(row) for row in rows)
    places = {column.name: place for place, column in enumerate(columns)}
    key = tuple(places[str(row[0])] for row in session.rows(_KEY, database, table))
    return TableSchema(database, table, columns, key)


def catalog_lookup(session_factory: Callable[[], Session]) -> Callable[[str, str], TableSchema | None]:
    """A `SchemaLookup` that asks the server once a table, over one connection opened when first needed."""
    known: dict[tuple[str, str], TableSchema | None] = {}
    opened: list[Session] = []

    def lookup(database: str, table: str) -> TableSchema | None:
        if (database, table) not in known:
            if not opened:
                opened.append(session_factory())
            known[database, table] = table_schema(opened[0], database, table)
        return known[database, table]

    return lookup


def column_of(row: Row) -> Column:
    """A row of name, data_type, column_type, collation_name and, on MySQL, srs_id."""
    name, data_type, column_type, collation = (None if value is None else str(value) for value in row[:4])
    if name is None or data_type is None or column_type is None:
        raise SourceError(f"information_schema.columns has no name or type in {row!r}")
    srid = int(row[4]) if len(row) > 4 and row[4] is not None else None
    known = DATA_TYPES.get(data_type.lower())
    labels = _labels(column_type) if known is not None and known.has_labels else ()
    return Column(name, data_type.lower(), " unsigned" in column_type.lower(), collation, labels, srid)


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "Z": "\x1a"}


def _labels(column_type: str) -> tuple[str, ...]:
    """Labels of ``enum('a','it''s')``: a quote is doubled, and what a string literal escapes is escaped."""
    found = re.findall(r"'((?:[^'\\]|''|\\.)*)'", column_type, re.DOTALL)
    return tuple(re.sub(r"''|\\(.)", _unescaped, label, flags=re.DOTALL) for label in found)


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1]) if match[1] else "'"
