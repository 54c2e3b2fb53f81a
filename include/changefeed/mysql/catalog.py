"""Tables and columns as `information_schema` has them now."""

from __future__ import annotations

from collections.abc import Callable

from changefeed.mysql.column_rows import INDEX_FIELDS, column_fields, column_of, keys_of
from changefeed.mysql.session import Session
from changefeed.table_schema import TableSchema

SYSTEM_DATABASES = ("mysql", "sys", "information_schema", "performance_schema")

_COLUMNS = """
SELECT {fields} FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_INDEXES = f"""
SELECT {INDEX_FIELDS} FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index
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
    """A table's columns and keys as they are now, or None where there is no such table."""
    is_mariadb = session.is_mariadb
    rows = session.rows(_COLUMNS.format(fields=column_fields(is_mariadb=is_mariadb)), database, table)
    if not rows:
        return None
    columns = tuple(column_of(row, is_mariadb=is_mariadb) for row in rows)
    keys = keys_of(session.rows(_INDEXES, database, table), columns)
    return TableSchema(database, table, columns, *keys).keys_of_current_rows


def catalog_lookup(session_factory: Callable[[], Session]) -> Callable[[str, str], TableSchema | None]:
    """A `SchemaLookup` that asks the server once for each table, over a connection opened when first needed."""
    known: dict[tuple[str, str], TableSchema | None] = {}
    opened: list[Session] = []

    def lookup(database: str, table: str) -> TableSchema | None:
        if (database, table) not in known:
            if not opened:
                opened.append(session_factory())
            known[database, table] = table_schema(opened[0], database, table)
        return known[database, table]

    return lookup
