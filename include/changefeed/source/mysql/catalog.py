"""Tables and columns as `information_schema` has them now."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from changefeed.model.identifier import quoted
from changefeed.model.table_schema import Column, TableSchema
from changefeed.source.mysql.column_rows import FIELD_COUNT, INDEX_FIELDS, column_fields, column_of, keys_of
from changefeed.source.mysql.exact_columns import exact_columns, exact_create
from changefeed.source.mysql.own_tables import NOT_OWN, is_own_table
from changefeed.source.mysql.session import Row, Session

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
_AT_ONCE = 100
"""Tables in a query."""
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
    """The storage engine ``name`` of a table; ``rolls_back`` if it has transactions."""

    name: str
    rolls_back: bool


def engine_of(session: Session, database: str, table: str) -> Engine:
    """The engine of a table that is there."""
    name, transactions = session.row(_ENGINE, database, table)
    return Engine(str(name), transactions == "YES")


def table_names(session: Session, *, sequences: bool = True) -> list[tuple[str, str]]:
    """(database, table) of all base tables but the server's own; with MariaDB's ``sequences``, whose changes are logged
    as rows of a table."""
    names = [(str(row[0]), str(row[1])) for row in session.rows(_TABLES) if sequences or row[2] != "SEQUENCE"]
    return [name for name in names if not is_own(session, *name)]


def is_own(session: Session, database: str, table: str) -> bool:
    """Whether a table of the session's server is one that the server brings along."""
    return is_own_table(database, table, is_mariadb=session.is_mariadb, major=session.version_number[0])


def table_schemas(session: Session, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TableSchema]:
    """`table_schema` of each (database, table) of ``names``, without those that are not there.

    MySQL is asked for many at once; MariaDB opens all tables of a database for that, and is asked for each.
    """
    wanted = sorted(set(names))
    if session.is_mariadb:
        found = {name: table_schema(session, *name) for name in wanted}
        return {name: schema for name, schema in found.items() if schema is not None}
    fields = column_fields(session)
    schemas: dict[tuple[str, str], TableSchema] = {}
    for database, of_database in groupby(wanted, key=lambda name: name[0]):
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
    return {name: schemas[name] for name in wanted if name in schemas}


def table_schema(session: Session, database: str, table: str) -> TableSchema | None:
    """A table's columns and keys as they are now, or None where there is no such table.

    Raises SchemaError as `exact_columns`.
    """
    is_mariadb = session.is_mariadb
    rows = session.rows(_COLUMNS.format(fields=column_fields(session)), database, table)
    if not rows:
        return None
    columns = exact_columns(session, database, table, [column_of(row, is_mariadb=is_mariadb) for row in rows])
    keys = keys_of(session, database, table, session.rows(_INDEXES, database, table), columns)
    return TableSchema(database, table, columns, *keys).keys_of_current_rows


def shown_create(session: Session, database: str, table: str) -> str:
    """What SHOW CREATE TABLE has of a table. MariaDB writes a default of bytes as they are: those that are no UTF-8
    come as Python's surrogates for them.

    Raises as `Session` does.
    """
    session.rows("SET SESSION character_set_results = binary")  # PyMySQL cannot read it as text then
    try:
        shown = session.row(f"SHOW CREATE TABLE {quoted(database)}.{quoted(table)}")[1]
    finally:
        session.rows("SET SESSION character_set_results = @@character_set_client")
    return shown.decode("utf-8", "surrogateescape") if isinstance(shown, bytes) else str(shown)


def create_statement(session: Session, database: str, table: str) -> str:
    """What SHOW CREATE TABLE has of a table, with characters of four bytes where the server shows question marks, and
    defaults of bytes in hexadecimal digits where MariaDB shows the bytes.

    Raises as `Session` does, and SchemaError as `exact_columns`.
    """
    create = _DEFAULT.sub(_of_bytes, shown_create(session, database, table))
    if "?" not in create:
        return create
    rows = session.rows(_COLUMNS.format(fields=column_fields(session)), database, table)
    listed = [column_of(row, is_mariadb=session.is_mariadb) for row in rows]
    return exact_create(create, listed, exact_columns(session, database, table, listed))


_DEFAULT = re.compile(r" DEFAULT '((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", None: "'"}


def _of_bytes(default: re.Match[str]) -> str:
    if not any("\udc80" <= character <= "\udcff" for character in default[1]):
        return default[0]
    text = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), default[1])
    return f" DEFAULT X'{text.encode('utf-8', 'surrogateescape').hex().upper()}'"


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
