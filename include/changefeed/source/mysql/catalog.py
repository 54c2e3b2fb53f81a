"""Reads the current tables and columns from `information_schema`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from changefeed.model.table_schema import Column, TableSchema
from changefeed.source.mysql.column_rows import FIELD_COUNT, INDEX_FIELDS, column_fields, column_of, keys_of
from changefeed.source.mysql.exact_columns import exact_columns, exact_create
from changefeed.source.mysql.own_tables import NOT_OWN, is_own_table
from changefeed.source.mysql.session import Row, Session
from changefeed.source.mysql.shown_create import readable_create

_COLUMNS = """
SELECT {fields} FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_INDEXES = f"""
SELECT {INDEX_FIELDS} FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index
"""
_COLUMNS_OF_MANY = """
SELECT {fields}, table_name FROM information_schema.columns
WHERE table_schema = %s AND table_name IN %s ORDER BY table_name, ordinal_position
"""
_INDEXES_OF_MANY = f"""
SELECT table_name, {INDEX_FIELDS} FROM information_schema.statistics
WHERE table_schema = %s AND table_name IN %s ORDER BY table_name, index_name, seq_in_index
"""
_VIEW = """
SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s AND table_type = 'VIEW'
"""
_AT_ONCE = 100
"""The most tables in a query."""
_TABLES = f"""
SELECT table_schema, table_name, table_type FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE')
AND {NOT_OWN} ORDER BY 1, 2
"""

_ENGINE = """
SELECT t.engine, e.transactions FROM information_schema.tables AS t
LEFT JOIN information_schema.engines AS e ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s
"""


@dataclass(frozen=True)
class Engine:
    """A storage engine; ``rolls_back`` is True if it has transactions."""

    name: str
    rolls_back: bool


def engine_of(session: Session, database: str, table: str) -> Engine:
    """The engine of an existing table."""
    name, transactions = session.row(_ENGINE, database, table)
    return Engine(str(name), transactions == "YES")


def table_names(session: Session, *, sequences: bool = True) -> list[tuple[str, str]]:
    """(database, table) of all base tables except system tables.

    With ``sequences`` also MariaDB's sequences, whose changes are logged as rows."""
    names = [(str(row[0]), str(row[1])) for row in session.rows(_TABLES) if sequences or row[2] != "SEQUENCE"]
    return [name for name in names if not is_own(session, *name)]


def is_own(session: Session, database: str, table: str) -> bool:
    """Whether a table is a system table of the session's server."""
    return is_own_table(database, table, is_mariadb=session.is_mariadb, major=session.version_number[0])


def table_schemas(session: Session, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TableSchema]:
    """The result of `table_schema` for each (database, table) of ``names``, without missing tables and views.

    On MySQL one query reads many tables. On MariaDB each table has its own query: for one query of many tables MariaDB
    would open all tables of a database.
    """
    requested = sorted(set(names))
    if session.is_mariadb:
        found = {name: table_schema(session, *name) for name in requested}
        return _without_views(session, {name: schema for name, schema in found.items() if schema is not None})
    fields = column_fields(session)
    schemas: dict[tuple[str, str], TableSchema] = {}
    for database, of_database in groupby(requested, key=lambda name: name[0]):
        tables = [table for _, table in of_database]
        for at in range(0, len(tables), _AT_ONCE):
            asked = tables[at : at + _AT_ONCE]
            columns: dict[str, list[Column]] = {}
            for row in session.rows(_COLUMNS_OF_MANY.format(fields=fields), database, asked):
                columns.setdefault(str(row[FIELD_COUNT]), []).append(column_of(row, is_mariadb=False))
            indexes: dict[str, list[Row]] = {}
            for table, *index in session.rows(_INDEXES_OF_MANY, database, asked):
                indexes.setdefault(str(table), []).append(tuple(index))
            for table, listed in columns.items():
                its = exact_columns(session, database, table, listed)
                keys = keys_of(session, database, table, indexes.get(table, ()), its)
                schemas[database, table] = TableSchema(database, table, its, *keys).keys_of_current_rows
    return _without_views(session, {name: schemas[name] for name in requested if name in schemas})


def is_view(session: Session, database: str, table: str) -> bool:
    """Whether the name is that of a view."""
    return bool(session.rows(_VIEW, database, table))


def _without_views(
    session: Session, schemas: Mapping[tuple[str, str], TableSchema]
) -> dict[tuple[str, str], TableSchema]:
    return {name: schema for name, schema in schemas.items() if schema.primary_key or not is_view(session, *name)}


def table_schema(session: Session, database: str, table: str) -> TableSchema | None:
    """A table's current columns and keys; None if there is no such table.

    Raises SchemaError as `exact_columns` does.
    """
    is_mariadb = session.is_mariadb
    rows = session.rows(_COLUMNS.format(fields=column_fields(session)), database, table)
    if not rows:
        return None
    columns = exact_columns(session, database, table, [column_of(row, is_mariadb=is_mariadb) for row in rows])
    keys = keys_of(session, database, table, session.rows(_INDEXES, database, table), columns)
    return TableSchema(database, table, columns, *keys).keys_of_current_rows


def create_statement(session: Session, database: str, table: str) -> str:
    """The text of SHOW CREATE TABLE, with four-byte characters instead of the server's question marks.

    Defaults that MariaDB shows as raw bytes are written in hexadecimal digits.

    Raises as `Session` does, and SchemaError as `exact_columns`.
    """
    create = readable_create(session, database, table)
    if "?" not in create:
        return create
    rows = session.rows(_COLUMNS.format(fields=column_fields(session)), database, table)
    listed = [column_of(row, is_mariadb=session.is_mariadb) for row in rows]
    return exact_create(create, listed, exact_columns(session, database, table, listed))


def catalog_lookup(session_factory: Callable[[], Session]) -> Callable[[str, str], TableSchema | None]:
    """A `SchemaLookup` that queries the server once for each table, over a connection that is opened on demand."""
    known: dict[tuple[str, str], TableSchema | None] = {}
    opened: list[Session] = []

    def lookup(database: str, table: str) -> TableSchema | None:
        if (database, table) not in known:
            if not opened:
                opened.append(session_factory())
            known[database, table] = table_schema(opened[0], database, table)
        return known[database, table]

    return lookup
