"""What a server shows of a database, by SQL alone: to compare two servers without anything of changefeed's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pymysql

from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

SESSION = (
    "sql_mode = ''",
    "time_zone = '+00:00'",
    "sql_select_limit = 18446744073709551615",
    "max_join_size = 18446744073709551615",
    "autocommit = 1",
    "max_execution_time = 0",
    "max_statement_time = 0",
    "sql_quote_show_create = 1",
    "show_create_table_verbosity = 0",
    "show_gipk_in_create_table_and_information_schema = 1",
)
"""Settings of the session that looks."""


def set_session(cursor: Any) -> None:
    """Give a session the settings that let it look at all there is."""
    for setting in SESSION:
        with suppress(pymysql.MySQLError):  # one server has it, and the other not
            cursor.execute(f"SET SESSION {setting}")


def shown(server: SqlServer, database: str) -> dict[str, Any]:
    """What the server shows of a database and its tables: definitions, checksums and rows, by SQL alone."""
    found: dict[str, Any] = {}
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:

        def rows(sql: str) -> list[tuple[Any, ...]]:
            cursor.execute(sql)
            return list(cursor.fetchall())

        def compared(sql: str, place: int) -> Any:
            """A value, or the server's error: it has to be the same on both."""
            try:
                return rows(sql)[0][place]
            except pymysql.MySQLError as error:
                return str(error)

        set_session(cursor)
        name = _identifier(database)
        found[""] = rows(f"SHOW CREATE DATABASE {name}")[0][1]
        listed = (
            "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
            f"AND table_schema = {connection.escape(database)}"
        )
        for (table,) in sorted(rows(listed)):
            name = f"{_identifier(database)}.{_identifier(table)}"
            where = f"WHERE table_schema = {connection.escape(database)} AND table_name = {connection.escape(table)}"
            definition = compared(f"SHOW CREATE TABLE {name}", 1)
            columns = rows(
                "SELECT column_name, ordinal_position, column_default, is_nullable, column_type, character_set_name, "
                f"collation_name, extra, column_comment FROM information_schema.columns {where} ORDER BY 2"
            )
            indexes = rows(
                "SELECT index_name, non_unique, seq_in_index, column_name, sub_part, index_type "
                f"FROM information_schema.statistics {where} ORDER BY 1, 3"
            )
            # Of a table with virtual columns MariaDB's is another with each opening of the table.
            is_comparable = not (isinstance(server, MariadbServer) and " GENERATED ALWAYS AS " in definition)
            # PyMySQL has no reader of MySQL's vectors
            expressions = [
                f"HEX({_identifier(one[0])})" if "vector" in one[4] else _identifier(one[0]) for one in columns
            ]
            try:
                selected = sorted(map(repr, rows(f"SELECT {', '.join(expressions)} FROM {name}")))
            except (pymysql.MySQLError, UnicodeDecodeError) as error:
                selected = [str(error)]
            found[table] = {
                "definition": definition,
                "columns": columns,
                "indexes": indexes,
                "checksum": compared(f"CHECKSUM TABLE {name}", 1) if is_comparable else None,
                "rows": selected,
            }
    return found


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def table_differences(name: str, source: Any, follower: Any) -> Iterator[str]:
    """What differs of a table, in words."""
    if not isinstance(source, dict) or not isinstance(follower, dict):
        if source != follower:
            yield f"{name}: source {str(source)[:300]}, follower {str(follower)[:300]}"
        return
    for what in source:
        mine, theirs = source[what], follower[what]
        if mine == theirs:
            continue
        if isinstance(mine, list):
            only_mine = [each for each in mine if each not in theirs][:2]
            only_theirs = [each for each in theirs if each not in mine][:2]
            yield f"{name} {what}: source {len(mine)} {only_mine!r:.900}, follower {len(theirs)} {only_theirs!r:.900}"
        else:
            pairs = zip(str(mine), str(theirs), strict=False)
            at = max(0, next((at for at, (one, other) in enumerate(pairs) if one != other), 0) - 80)
            yield f"{name} {what}: source …{str(mine)[at : at + 300]!r}, follower …{str(theirs)[at : at + 300]!r}"
