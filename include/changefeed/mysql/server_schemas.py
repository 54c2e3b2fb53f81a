"""All schemas of a server as `information_schema` has them now."""

from __future__ import annotations

from collections import defaultdict

from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.session import Flavour, Server
from changefeed.ddl.table import Table, is_generated_key
from changefeed.mysql.catalog import SYSTEM_DATABASES, column_of
from changefeed.mysql.session import Row, Session
from changefeed.table_schema import TableSchema

_NOT_SYSTEM = "NOT IN ('" + "', '".join(SYSTEM_DATABASES) + "')"
_TABLES = f"""
SELECT table_schema, table_name, table_collation FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND table_schema {_NOT_SYSTEM}
"""
_COLUMNS = """
SELECT column_name, data_type, column_type, collation_name{srid}, table_schema, table_name, extra
FROM information_schema.columns WHERE table_schema {schemas} ORDER BY table_schema, table_name, ordinal_position
"""
_KEYS = f"""
SELECT table_schema, table_name, column_name FROM information_schema.statistics
WHERE index_name = 'PRIMARY' AND table_schema {_NOT_SYSTEM} ORDER BY table_schema, table_name, seq_in_index
"""


def server_of(session: Session) -> Server:
    """What a statement's meaning depends on besides its session."""
    numbers = [int(part) for part in session.version.split("-")[0].split(".")[:3]]
    return Server(
        Flavour.MARIADB if session.is_mariadb else Flavour.MYSQL,
        (numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0),
        int(session.variable("lower_case_table_names") or 0),
        str(session.variable("collation_server")),
    )


def collation_names(session: Session) -> dict[int, str]:
    """Collations by id, as QUERY events name them."""
    table = "id, collation_name FROM information_schema.collations"
    if session.is_mariadb:
        table = "id, full_collation_name FROM information_schema.collation_character_set_applicability"
    return {int(row[0]): str(row[1]) for row in session.rows(f"SELECT {table}") if row[0] is not None}


def current_schemas(session: Session) -> Schemas:
    """All databases and tables but the server's own; four queries, however many there are."""
    server = server_of(session)
    rows = session.rows(
        f"SELECT schema_name, default_collation_name FROM information_schema.schemata WHERE schema_name {_NOT_SYSTEM}"
    )
    databases = {server.table_name(str(name)): str(collation) for name, collation in rows}
    columns: dict[tuple[str, str], list[Row]] = defaultdict(list)
    width = 4 if session.is_mariadb else 5
    for row in session.rows(_COLUMNS.format(srid="" if session.is_mariadb else ", srs_id", schemas=_NOT_SYSTEM)):
        columns[str(row[width]), str(row[width + 1])].append(row)
    keys: dict[tuple[str, str], list[str]] = defaultdict(list)
    for database, table, column in session.rows(_KEYS):
        keys[str(database), str(table)].append(str(column))
    tables = {}
    for database, table, collation in session.rows(_TABLES):
        name = (str(database), str(table))
        schema = _schema(name, columns[name], keys[name], width)
        hidden = bool(columns[name]) and "INVISIBLE" in str(columns[name][0][-1]).upper()
        generated = hidden and is_generated_key(schema, server)
        tables[TableName(*map(server.table_name, name))] = Table(schema, str(collation or ""), generated)
    return Schemas(server, databases, tables)


def _schema(name: tuple[str, str], rows: list[Row], key: list[str], width: int) -> TableSchema:
    columns = tuple(column_of(row[:width]) for row in rows)
    places = {column.name: place for place, column in enumerate(columns)}
    return TableSchema(*name, columns, tuple(places[column] for column in key))
