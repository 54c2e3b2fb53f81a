"""The tables that a file of SQL statements defines, such as the output of `mysqldump --no-data`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from changefeed.ddl.cursor import Cursor
from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.scanner import TokenKind, UnreadableStatement, scan
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.session import Server, SessionContext
from changefeed.errors import SchemaError


def defined_schemas(sql: str, before: Schemas) -> Schemas:
    """The schemas after the statements of a file, on a server with the databases of ``before`` and no tables.

    The database of a table without one is ''. Raises SchemaError for text that is not SQL.
    """
    schemas, session = replace(before, tables={}, views=frozenset()), SessionContext()
    try:
        for statement in _statements(_BODIES.sub("", sql), session, before.server):
            cursor = Cursor(statement, session, before.server)
            if cursor.one_of("USE"):
                session = replace(session, database=cursor.identifier())
            else:
                schemas = schemas.apply(read_statement(statement, session, before.server))
    except (UnreadableStatement, ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        raise SchemaError(f"the statements cannot be read: {error!r}") from error
    return schemas


_BODIES = re.compile(r"^DELIMITER[ \t]+(?!;[ \t]*$)\S+[ \t]*$.*?(?:^DELIMITER[ \t]+;[ \t]*$|\Z)", re.M | re.S | re.I)
"""Triggers and routines, which mysqldump writes between two DELIMITER lines. Their statements are skipped."""


def _statements(sql: str, session: SessionContext, server: Server) -> Iterator[str]:
    start = 0
    for token in scan(sql, session, server):
        if token.kind is TokenKind.END or (token.kind is TokenKind.SYMBOL and token.text == ";"):
            if statement := sql[start : token.start].strip():
                yield statement
            start = token.end
