"""Reads all current schemas of a server from `information_schema`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.table import Table, UnknownTable, is_generated_key
from changefeed.ddl.table_elements import Period
from changefeed.errors import SchemaError, SourceError, SourceUnavailableError
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import TableSchema
from changefeed.source.mysql.catalog import is_own, table_names
from changefeed.source.mysql.column_rows import FIELD_COUNT, INDEX_FIELDS, column_fields, column_of, keys_of
from changefeed.source.mysql.exact_columns import exact_columns
from changefeed.source.mysql.own_tables import NOT_OWN, OWN_DATABASES
from changefeed.source.mysql.session import Row, Session, server_of

_TABLES = f"""
SELECT table_schema, table_name, table_collation FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND {NOT_OWN}
"""
_COLUMNS = f"""
SELECT {{fields}}, table_schema, table_name FROM information_schema.columns
WHERE {NOT_OWN} ORDER BY table_schema, table_name, ordinal_position
"""
_INDEXES = f"""
SELECT table_schema, table_name, {INDEX_FIELDS} FROM information_schema.statistics
WHERE {NOT_OWN} ORDER BY table_schema, table_name, index_name, seq_in_index
"""
_VIEWS = f"""
SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND {NOT_OWN}
"""
_PERIODS = f"""
SELECT table_schema, table_name, period, start_column_name, end_column_name FROM information_schema.periods
WHERE {NOT_OWN} ORDER BY table_schema, table_name, period
"""
_EXTRA = 6
"""The index of `extra` in `column_fields`, which shows that a column is invisible."""


def collation_names(session: Session) -> dict[int, str]:
    """Collations by id, as QUERY events name them."""
    table = "id, collation_name FROM information_schema.collations"
    if session.is_mariadb:
        table = "id, full_collation_name FROM information_schema.collation_character_set_applicability"
    return {int(row[0]): str(row[1]) for row in session.rows(f"SELECT {table}") if row[0] is not None}


LOCK_SECONDS = 60
"""The timeout, in seconds, for a table that DDL locks."""


def current_schemas(session: Session) -> Schemas:
    """All databases and tables except system tables; four queries for any number of them."""
    server = server_of(session)
    rows = session.rows(
        "SELECT schema_name, default_collation_name FROM information_schema.schemata WHERE schema_name NOT IN %s",
        OWN_DATABASES,
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
    tables: dict[TableName, Entry] = {}
    for database, table, collation in session.rows(_TABLES):
        name = (str(database), str(table))
        if is_own(session, *name):
            continue
        listed = [column_of(row, is_mariadb=session.is_mariadb) for row in columns[name]]
        known_as = TableName(*map(server.table_name, name))
        try:
            shown = exact_columns(session, *name, listed)
        except SchemaError as error:
            tables[known_as] = UnknownTable(known_as, str(error))
            continue
        schema = TableSchema(*name, shown, *keys_of(session, *name, indexes[name], shown)).keys_of_current_rows
        hidden = bool(shown) and "INVISIBLE" in str(columns[name][0][_EXTRA]).upper()
        generated = hidden and is_generated_key(schema, server)
        table_periods = tuple(periods[name])
        tables[known_as] = Table(schema, str(collation or ""), generated, table_periods)
    views = frozenset(TableName(*map(server.table_name, map(str, name))) for name in session.rows(_VIEWS))
    return Schemas(server, databases, tables, views)


def wait_for_logged_ddl(session: Session) -> None:
    """Wait until `information_schema` shows all DDL that was in the binlog before the call.

    MySQL logs a statement before it commits it. So `information_schema` may not yet show an ALTER that is before the
    head of the binlog, for milliseconds or while semi-synchronous replication waits. The tables of the ALTER are locked
    until the commit, and SHOW CREATE TABLE waits for the lock. MariaDB changes its tables before it logs the statement.

    Raises SourceUnavailableError if a table stays locked for LOCK_SECONDS. The function does not wait for a table that
    is being created: if its schema stays unknown, its rows fail the run.
    """
    if session.is_mariadb:
        return
    (before,) = session.row("SELECT @@SESSION.lock_wait_timeout")
    session.rows(f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}")
    for database, table in table_names(session):
        name = f"{quote_name(database)}.{quote_name(table)}"
        try:
            session.rows(f"SHOW CREATE TABLE {name}")
        except SourceUnavailableError as error:
            raise SourceUnavailableError(
                f"{session.connection}: table {name} was locked for {LOCK_SECONDS} seconds by a statement that changes "
                f"it ({error}). Its columns are not known yet. Run again when that statement has ended."
            ) from error
        except SourceError:
            continue  # it was dropped, or the user may not see it: `check_rights` reports missing privileges
    session.rows(f"SET SESSION lock_wait_timeout = {before}")  # after an error, a kept session is closed


def _periods(session: Session) -> Mapping[tuple[str, str], list[Period]]:
    """The periods of tables; MariaDB lists them from 11.4 on."""
    periods: dict[tuple[str, str], list[Period]] = defaultdict(list)
    if session.is_mariadb and session.rows("SHOW TABLES FROM information_schema LIKE 'PERIODS'"):
        for database, table, *period in session.rows(_PERIODS):
            periods[str(database), str(table)].append(Period(*map(str, period)))
    return periods
