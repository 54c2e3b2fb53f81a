"""The effects of DDL on tables, as `tableChanges` in Debezium's schema change records.

Source: https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-schema-change-topic
"""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.formats.format import TableChange
from changefeed.model.table_schema import TableSchema


def table_changes(changes: Sequence[TableChange]) -> list[dict[str, object]]:
    """Debezium's `tableChanges` of a DDL statement."""
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
