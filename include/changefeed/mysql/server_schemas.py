"""All schemas of a server as `information_schema` has them now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.session import Flavour, Server
from changefeed.ddl.table import Table, is_generated_key
from changefeed.ddl.table_elements import Period
from changefeed.mysql.catalog import SYSTEM_DATABASES
from changefeed.mysql.column_rows import FIELD_COUNT, INDEX_FIELDS, column_fields, column_of, keys_of
from changefeed.mysql.session import Row, Session
from changefeed.table_schema import TableSchema

_NOT_SYSTEM = "NOT IN ('" + "', '".join(SYSTEM_DATABASES) + "')"
_TABLES = f"""
SELECT table_schema, table_name, table_collation FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND table_schema {_NOT_SYSTEM}
"""
_COLUMNS = f"""
SELECT {{fields}}, table_schema, table_name FROM information_schema.columns
WHERE table_schema {_NOT_SYSTEM} ORDER BY table_schema, table_name, ordinal_position
"""
_INDEXES = f"""
SELECT table_schema, table_name, {INDEX_FIELDS} FROM information_schema.statistics
WHERE table_schema {_NOT_SYSTEM} ORDER BY table_schema, table_name, index_name, seq_in_index
"""
_VIEWS = f"""
SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema {_NOT_SYSTEM}
"""
_PERIODS = f"""
SELECT table_schema, table_name, period, start_column_name, end_column_name FROM information_schema.periods
WHERE table_schema {_NOT_SYSTEM} ORDER BY table_schema, table_name, period
"""
_EXTRA = 6
"""Where `column_fields` have `extra`, which says that a column is invisible."""


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
    fields = column_fields(session)
    columns: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in session.rows(_COLUMNS.format(fields=fields)):
        columns[str(row[FIELD_COUNT]), str(row[FIELD_COUNT + 1])].append(row)
    indexes: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in session.rows(_INDEXES):
        indexes[str(row[0]), str(row[1])].append(row[2:])
    periods = _periods(session)
    tables = {}
    for database, table, collation in session.rows(_TABLES):
        name = (str(database), str(table))
        shown = tuple(column_of(row, is_mariadb=session.is_mariadb) for row in columns[name])
        schema = TableSchema(*name, shown, *keys_of(indexes[name], shown)).keys_of_current_rows
        hidden = bool(shown) and "INVISIBLE" in str(columns[name][0][_EXTRA]).upper()
        generated = hidden and is_generated_key(schema, server)
        table_periods = tuple(periods[name])
        tables[TableName(*map(server.table_name, name))] = Table(schema, str(collation or ""), generated, table_periods)
    views = frozenset(TableName(*map(server.table_name, map(str, name))) for name in session.rows(_VIEWS))
    return Schemas(server, databases, tables, views)


def _periods(session: Session) -> Mapping[tuple[str, str], list[Period]]:
    """The periods of tables; MariaDB lists them from 11.4 on."""
    periods: dict[tuple[str, str], list[Period]] = defaultdict(list)
    if session.is_mariadb and session.rows("SHOW TABLES FROM information_schema LIKE 'PERIODS'"):
        for database, table, *period in session.rows(_PERIODS):
            periods[str(database), str(table)].append(Period(*map(str, period)))
    return periods
