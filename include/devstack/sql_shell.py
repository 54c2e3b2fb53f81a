"""Runs SQL statements that a person enters on the demo's database server."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from devstack.errors import DevstackError


def run_statements(url: str, statements: str) -> Iterator[list[str]]:
    """The rows that *statements*, separated by semicolons, return on the server of *url*, as texts.

    Each statement is committed by itself, unless the statements begin a transaction. Raises DevstackError at the first
    that fails.
    """
    parts = urlsplit(url)
    try:
        with (
            pymysql.connect(
                host=parts.hostname or "127.0.0.1",
                port=parts.port or 3306,
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                charset="utf8mb4",
                autocommit=True,
                client_flag=CLIENT.MULTI_STATEMENTS,
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statements)
            yield from ([str(value) for value in row] for row in cursor.fetchall())
            while cursor.nextset():
                yield from ([str(value) for value in row] for row in cursor.fetchall())
    except pymysql.MySQLError as error:
        raise DevstackError(
            f"The database server refused a statement: {error}. Statements before it are committed"
        ) from error
