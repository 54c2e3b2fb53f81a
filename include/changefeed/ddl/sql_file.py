"""The tables that a file of SQL statements defines, such as `mysqldump --no-data` writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.scanner import TokenKind, UnreadableStatement, scan
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.session import Server, SessionContext
from changefeed.errors import SchemaError


def defined_schemas(sql: str, before: Schemas) -> Schemas:
    """The schemas after the statements of a file, one after another, on a server that has the databases of ``before``
    and no tables. A table of no database has the database ''.

    Raises SchemaError for text that is no SQL.
    """
    schemas, session = replace(before, tables={}, views=frozenset()), SessionContext()
    try:
        statements = list(_statements(sql, session, before.server))
    except UnreadableStatement as error:
        raise SchemaError(f"the statements cannot be read: {error}") from error
    for statement in statements:
        words = statement.split(None, 1)
        if words and words[0].upper() == "USE":
            session = replace(session, database=words[1].strip().strip("`"))
        else:
            schemas = schemas.apply(read_statement(statement, session, before.server))
    return schemas


def _statements(sql: str, session: SessionContext, server: Server) -> Iterator[str]:
    start = 0
    for token in scan(sql, session, server):
        if token.kind is TokenKind.END or (token.kind is TokenKind.SYMBOL and token.text == ";"):
            if statement := sql[start : token.start].strip():
                yield statement
            start = token.end
