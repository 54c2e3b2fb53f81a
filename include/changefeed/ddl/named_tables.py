"""The tables that a statement names, both written and read ones."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from changefeed.ddl.names import TableName


def named_tables(sql: str, database: str) -> tuple[TableName, ...]:
    """The tables that ``sql`` names, in the order of the text and without duplicates; () if it cannot be parsed.

    ``database`` is the default database.
    """
    try:
        statements = sqlglot.parse(sql, read="mysql")
    except SqlglotError:
        return ()
    tables = (table for statement in statements if statement is not None for table in statement.find_all(exp.Table))
    names = (TableName(table.db or database, table.name) for table in tables if table.name)
    return tuple(dict.fromkeys(names))
