"""Records of statements: schema changes, truncates, and changes in statement format.

Schema changes follow Debezium's (`databaseName`, `ddl`, `tableChanges`); the others share the envelope of row changes.
Source: https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-schema-change-topic
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from changefeed import __version__
from changefeed.reader import Statement
from changefeed.table_schema import TableSchema

TableChange = tuple[str, str, TableSchema | None]
"""(database, table, its columns after the statement); None for a table that is gone or not known."""

QUERY_EVENT = 2


def schema_change(
    server_name: str, ts_ms: int, statement: Statement, kind: str, changes: Iterable[TableChange]
) -> bytes:
    """The value of a schema-change record."""
    changes = list(changes)
    return orjson.dumps(
        {
            "source": _source(server_name, statement, [(database, table) for database, table, _ in changes]),
            "ts_ms": ts_ms,
            "kind": kind,
            "databaseName": statement.database,
            "ddl": statement.sql,
            "tableChanges": [
                {
                    "type": "ALTER" if schema else "DROP",
                    "id": f'"{database}"."{table}"',
                    "table": _table(schema) if schema else None,
                }
                for database, table, schema in changes
            ],
        }
    )


def truncate(server_name: str, ts_ms: int, statement: Statement, database: str, table: str) -> bytes:
    """The value of a truncate record: op `t`, as Debezium writes it."""
    envelope = {"before": None, "after": None, "source": _source(server_name, statement, [(database, table)])}
    return orjson.dumps({**envelope, "op": "t", "ts_ms": ts_ms})


def statement_record(
    server_name: str, ts_ms: int, statement: Statement, tables: list[tuple[str, str]], *, hide_sql: bool
) -> bytes:
    """The value of a statement record: op `q` with its SQL, or null for that; no row image is known."""
    return orjson.dumps(
        {
            "before": None,
            "after": None,
            "source": _source(server_name, statement, tables),
            "op": "q",
            "ts_ms": ts_ms,
            "database": statement.database,
            "sql": None if hide_sql else statement.sql,
            "tables": [f"{database}.{table}" for database, table in tables],
        }
    )


def event_header(statement: Statement) -> bytes:
    """The binlog event's header as JSON: the value of the record header `mysql_binlog_headers`."""
    return orjson.dumps(
        {
            "timestamp": statement.ts_seconds,
            "event_type": QUERY_EVENT,
            "server_id": statement.server_id,
            "event_size": statement.size_bytes,
            "log_file": statement.file,
            "log_pos": statement.position + statement.size_bytes,
            "flags": statement.flags,
        }
    )


def _source(server_name: str, statement: Statement, tables: list[tuple[str, str]]) -> dict[str, object]:
    return {
        "version": __version__,
        "connector": "mysql",
        "name": server_name,
        "ts_ms": statement.ts_seconds * 1000,
        "snapshot": "false",
        "db": tables[0][0] if tables else statement.database,
        "table": ",".join(table for _, table in tables) or None,
        "server_id": statement.server_id,
        "gtid": statement.gtid or None,
        "file": statement.file,
        "pos": statement.position,
        "row": 0,
    }


def _table(schema: TableSchema) -> dict[str, object]:
    return {
        "primaryKeyColumnNames": [schema.columns[place].name for place in schema.primary_key],
        "columns": [
            {
                "name": column.name,
                "position": number,
                "typeName": column.data_type.upper() + (" UNSIGNED" if column.unsigned else ""),
                "collationName": column.collation,
                "enumValues": list(column.labels) or None,
                "srid": column.srid,
            }
            for number, column in enumerate(schema.columns, start=1)
        ],
    }
