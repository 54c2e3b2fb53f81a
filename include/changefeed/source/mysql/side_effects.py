"""Finds row changes without a row event: by foreign keys, triggers, functions, views. Also columns that no DDL has.

A change in statement format is logged as the text of the outermost statement. So the binlog does not show the changes
that a function or a trigger makes in other tables.

Sources: https://dev.mysql.com/doc/refman/9.7/en/innodb-and-mysql-replication.html,
https://dev.mysql.com/doc/refman/9.7/en/stored-programs-logging.html,
https://dev.mysql.com/doc/refman/9.7/en/information-schema-referential-constraints-table.html,
https://mariadb.com/kb/en/replication-and-foreign-keys/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property

from changefeed.ddl.ddl_statement import DdlStatement
from changefeed.ddl.names import TableName
from changefeed.ddl.scanner import TokenKind, UnreadableStatement, scan
from changefeed.ddl.session import Server
from changefeed.source.mysql.catalog import is_own
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.shown_create import shown_create

_FOREIGN_KEYS = """
SELECT DISTINCT k.table_schema, k.table_name, k.constraint_name, r.delete_rule, r.update_rule
FROM information_schema.key_column_usage k
LEFT JOIN information_schema.referential_constraints r
ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name
WHERE k.referenced_table_name IS NOT NULL ORDER BY 1, 2, 3
"""
_PARENTS = """
SELECT DISTINCT table_schema, table_name, constraint_name, referenced_table_schema, referenced_table_name
FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL ORDER BY 1, 2, 3
"""
_LONG_UNIQUE_KEYS = """
SELECT DISTINCT s.table_schema, s.table_name FROM information_schema.statistics s
JOIN information_schema.tables t ON t.table_schema = s.table_schema AND t.table_name = s.table_name
WHERE s.non_unique = 0 AND s.index_type = 'HASH' AND t.engine <> 'MEMORY' ORDER BY 1, 2
"""
_VIRTUAL_COLUMNS = """
SELECT table_schema, table_name, column_name FROM information_schema.columns
WHERE extra LIKE '%VIRTUAL GENERATED%' ORDER BY table_schema, table_name, ordinal_position
"""
_HARMLESS = {"NO ACTION", "RESTRICT"}
_CASCADING_CLAUSE = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")


def logs_cascades(session: Session) -> bool:
    """Whether the binlog has the rows that a foreign key changes.

    It has them from MySQL 9.6 on, where the server instead of InnoDB executes foreign keys."""
    return session.variable("innodb_native_foreign_keys") == "OFF"


def cascading_keys(session: Session, captured: Callable[[str, str], bool]) -> Iterator[tuple[TableName, str]]:
    """Yield the ``captured`` tables whose rows a foreign key changes or deletes, each with the key's name."""
    for database, table, key, *rules in session.rows(_FOREIGN_KEYS):
        if not captured(str(database), str(table)):
            continue
        name = TableName(str(database), str(table))
        if None in rules:  # MariaDB does not show rules to a user that has only SELECT
            is_cascading = _is_shown_to_cascade(session, name, str(key))
        else:
            is_cascading = not _HARMLESS.issuperset(rules)
        if is_cascading:
            yield name, str(key)


def _is_shown_to_cascade(session: Session, table: TableName, key: str) -> bool:
    definition = shown_create(session, table.database, table.table)
    # InnoDB writes the key's name unescaped. The key's actions are at the end, after all names.
    lines = [line for line in definition.split("\n") if line.lstrip().startswith(f"CONSTRAINT `{key}` FOREIGN KEY")]
    return any(_CASCADING_CLAUSE.search(line.rpartition(")")[2]) for line in lines)


def keys_to_others(
    session: Session, captured: Callable[[str, str], bool]
) -> Iterator[tuple[TableName, str, TableName]]:
    """Yield the foreign keys of ``captured`` tables that refer to other tables: table, name of the key, other table."""
    for database, table, key, parent_database, parent in session.rows(_PARENTS):
        names = TableName(str(database), str(table)), TableName(str(parent_database), str(parent))
        if captured(*names[0]) and not captured(*names[1]):
            yield names[0], str(key), names[1]


def virtual_columns(session: Session, captured: Callable[[str, str], bool]) -> Iterator[tuple[TableName, str]]:
    """Yield the virtual columns of ``captured`` tables whose values in row images may be outdated.

    Only MySQL has such columns."""
    for database, table, column in session.rows(_VIRTUAL_COLUMNS) if not session.is_mariadb else ():
        if captured(str(database), str(table)):
            yield TableName(str(database), str(table)), str(column)


def hashed_tables(session: Session, captured: Callable[[str, str], bool]) -> Iterator[TableName]:
    """Yield the ``captured`` tables whose row images have MariaDB's hidden columns `DB_ROW_HASH_1` ….

    A table has such a column for each UNIQUE key that is too long for an ordinary index."""
    for database, table in session.rows(_LONG_UNIQUE_KEYS) if session.is_mariadb else ():
        if captured(str(database), str(table)):
            yield TableName(str(database), str(table))


_FUNCTIONS = f"""
SELECT LOWER(routine_name) FROM information_schema.routines
WHERE routine_type = 'FUNCTION' AND routine_schema NOT IN ('{"', '".join(SYSTEM_DATABASES)}')
"""
_VIEW = "SELECT 1 FROM information_schema.views WHERE table_schema = %s AND table_name = %s"
_TRIGGERS = """
SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = %s AND event_object_table = %s
"""
_CASCADES = """
SELECT DISTINCT k.table_schema, k.table_name FROM information_schema.key_column_usage k
LEFT JOIN information_schema.referential_constraints r
ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name
WHERE k.referenced_table_schema = %s AND k.referenced_table_name = %s
AND (r.delete_rule IS NULL OR r.delete_rule NOT IN ('NO ACTION', 'RESTRICT')
     OR r.update_rule NOT IN ('NO ACTION', 'RESTRICT'))
"""  # MariaDB does not show rules to a user that has only SELECT


class Reach:
    """Finds the tables that a statement may write, by the server's current schema; results are cached.

    A user with SELECT on all databases can see functions. A trigger is visible only to a user with TRIGGER on its
    table. Functions and triggers that are not visible are ignored. Raises the errors of `Session`.
    """

    def __init__(self, session: Callable[[], Session]) -> None:
        self._open = session
        self._cascades: dict[TableName, tuple[TableName, ...]] = {}
        self._doubts: dict[TableName, str] = {}

    def written_tables(self, tables: tuple[TableName, ...]) -> tuple[TableName, ...]:
        """The ``tables``, and all tables whose rows change through cascading foreign keys to these tables."""
        written_tables = list(dict.fromkeys(tables))
        for table in written_tables:  # the list grows during the iteration
            written_tables += [child for child in self._children(table) if child not in written_tables]
        return tuple(written_tables)

    def doubt(self, statement: DdlStatement, server: Server) -> str:
        """Why ``statement``, executed by ``server``, may write tables that it does not name as written; or ''."""
        if not statement.tables:
            return "its text does not say which tables it writes"
        try:
            called = self._called_function(statement, server)
        except UnreadableStatement as error:
            return f"its text cannot be read ({error}), so it may call a function that writes any table"
        if called:
            return f"it calls the function {called!r}, which may write any table"
        return next(filter(None, map(self._doubt_of, self.written_tables(statement.tables))), "")

    def _called_function(self, statement: DdlStatement, server: Server) -> str:
        """The first function that the statement calls, or ''.

        The text may be megabytes of rows, so it is split into tokens only if it contains the name of a function."""
        text = statement.sql.lower().replace("``", "`")
        if not any(name in text for name in self._functions):
            return ""
        before = ""
        for token in scan(statement.sql, statement.session, server):
            if token.kind is TokenKind.SYMBOL and token.text == "(" and before in self._functions:
                return before
            before = token.text.lower() if token.kind in (TokenKind.WORD, TokenKind.QUOTED) else ""
        return ""

    @cached_property
    def _session(self) -> Session:
        return self._open()

    @cached_property
    def _functions(self) -> frozenset[str]:
        return frozenset(str(name) for (name,) in self._session.rows(_FUNCTIONS))

    def _children(self, table: TableName) -> tuple[TableName, ...]:
        if table not in self._cascades:
            rows = [] if self._is_own(table) else self._session.rows(_CASCADES, *table)
            self._cascades[table] = tuple(TableName(str(database), str(name)) for database, name in rows)
        return self._cascades[table]

    def _doubt_of(self, table: TableName) -> str:
        if table not in self._doubts:
            self._doubts[table] = "" if self._is_own(table) else self._look_up_doubt(table)
        return self._doubts[table]

    def _is_own(self, table: TableName) -> bool:
        return table.database in SYSTEM_DATABASES and is_own(self._session, *table)

    def _look_up_doubt(self, table: TableName) -> str:
        if self._session.rows(_VIEW, *table):
            return f"{table} is a view, which may write any table"
        if triggers := self._session.rows(_TRIGGERS, *table):
            return f"{table} has the trigger {str(triggers[0][0])!r}, which may write any table"
        return ""
