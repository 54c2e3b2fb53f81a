"""Debezium's envelope as schemaless JSON: `before`, `after`, `source`, `op`, `ts_ms`.

Source: https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events, and for schema changes
(`databaseName`, `ddl`, `tableChanges`) its #mysql-schema-change-topic
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from changefeed import __version__
from changefeed.block import Header
from changefeed.formats.format import FormatSettings, TableChange
from changefeed.formats.headers import binlog_header
from changefeed.formats.notation import JSON, Notation
from changefeed.formats.options import Options
from changefeed.formats.style import DEFAULT_STYLE, Style
from changefeed.formats.template import DELETE_AND_CREATE, NO_SNAPSHOT, WITH_TOMBSTONES, Messages, Op, Slot, Template
from changefeed.reader import Statement
from changefeed.table_schema import TableSchema


@dataclass(frozen=True)
class DebeziumFormat:
    """``server_name`` is the pipeline's name (`source.name`); ``ts_ms`` when the window was frozen."""

    server_name: str
    ts_ms: int
    style: Style = DEFAULT_STYLE
    tombstones: bool = True
    notation: Notation = JSON
    needs_definitions: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> DebeziumFormat:
        """The format as ``settings`` say; raises OptionError, as it has no options."""
        Options("debezium-json", (), settings.options)
        return cls(settings.server_name, settings.ts_ms, settings.style, settings.tombstones)

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """The primary key's columns as a JSON object; None for a table without a primary key."""
        return (Slot.KEY,) if table.primary_key else None

    def messages(self, table: TableSchema) -> Messages:
        """A change of key is a delete, its tombstone and a create, as in Debezium."""
        return WITH_TOMBSTONES if self.tombstones and table.primary_key else DELETE_AND_CREATE

    def value(self, table: TableSchema, op: Op) -> Template:
        """The envelope of a row change."""
        head = f'"version":"{__version__}","connector":"mysql","name":{json.dumps(self.server_name)}'
        names = f'"db":{json.dumps(table.database)},"table":{json.dumps(table.table)}'
        return (
            b'{"before":',
            Slot.BEFORE,
            b',"after":',
            Slot.AFTER,
            f',"source":{{{head},"ts_ms":'.encode(),
            Slot.TS_SECONDS,
            b'000,"snapshot":"',
            Slot.SNAPSHOT,
            f'",{names},"server_id":'.encode(),
            Slot.SERVER_ID,
            b',"gtid":',
            Slot.GTID,
            b',"file":"',
            Slot.FILE,
            b'","pos":',
            Slot.POSITION,
            b',"row":',
            Slot.ROW,
            b',"query":',
            Slot.QUERY,
            f'}},"op":"{op}","ts_ms":{self.ts_ms}}}'.encode(),
        )

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """Debezium's record of a schema change, and the definition's verb in a field of our own: `kind`."""
        return orjson.dumps(
            {
                "source": self._source(statement, [(database, table) for database, table, _ in changes]),
                "ts_ms": self.ts_ms,
                "kind": kind,
                "databaseName": statement.database,
                "ddl": statement.sql,
                "tableChanges": table_changes(changes),
            }
        )

    def truncate(self, statement: Statement, table: TableSchema) -> bytes:
        """Op `t`, as Debezium writes it."""
        return orjson.dumps(self._envelope(statement, [(table.database, table.table)], "t"))

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """Op `q` with the statement's SQL, or null for that. Debezium has no such record: it is ours."""
        return orjson.dumps(
            {
                **self._envelope(statement, tables, "q"),
                "database": statement.database,
                "sql": None if hide_sql else statement.sql,
                "tables": [f"{database}.{table}" for database, table in tables],
            }
        )

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """The binlog event's own header as JSON."""
        return [binlog_header(statement)]

    def _envelope(self, statement: Statement, tables: Sequence[tuple[str, str]], op: str) -> dict[str, object]:
        source = self._source(statement, tables)
        return {"before": None, "after": None, "source": source, "op": op, "ts_ms": self.ts_ms}

    def _source(self, statement: Statement, tables: Sequence[tuple[str, str]]) -> dict[str, object]:
        return {
            "version": __version__,
            "connector": "mysql",
            "name": self.server_name,
            "ts_ms": statement.ts_seconds * 1000,
            "snapshot": NO_SNAPSHOT,
            "db": tables[0][0] if tables else statement.database,
            "table": ",".join(table for _, table in tables) or None,
            "server_id": statement.server_id,
            "gtid": statement.gtid or None,
            "file": statement.file,
            "pos": statement.position,
            "row": 0,
        }


def table_changes(changes: Sequence[TableChange]) -> list[dict[str, object]]:
    """What a definition did to each table, as Debezium's `tableChanges` say it."""
    return [
        {
            "type": "ALTER" if schema else "DROP",
            "id": f'"{database}"."{table}"',
            "table": _table(schema) if schema else None,
        }
        for database, table, schema in changes
    ]


def _table(schema: TableSchema) -> dict[str, object]:
    return {
        "primaryKeyColumnNames": [schema.columns[index].name for index in schema.primary_key],
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
