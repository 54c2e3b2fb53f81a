"""Rows that change without a word in the binlog, and columns that stand in it and in no definition.

Sources: https://dev.mysql.com/doc/refman/9.7/en/innodb-and-mysql-replication.html,
https://mariadb.com/kb/en/replication-and-foreign-keys/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from changefeed.ddl.names import TableName
from changefeed.mysql.session import Session

_FOREIGN_KEYS = """
SELECT DISTINCT k.table_schema, k.table_name, k.constraint_name, r.delete_rule, r.update_rule
FROM information_schema.key_column_usage k
LEFT JOIN information_schema.referential_constraints r
ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name
WHERE k.referenced_table_name IS NOT NULL ORDER BY 1, 2, 3
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
_CASCADES = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")


def logs_cascades(session: Session) -> bool:
    """Whether the rows that a foreign key changes are in the binlog: from MySQL 9.6 on, where the server carries such
    keys out itself and does not leave them to InnoDB."""
    return session.variable("innodb_native_foreign_keys") == "OFF"


def cascading_keys(session: Session, captured: Callable[[str, str], bool]) -> Iterator[tuple[TableName, str]]:
    """The ``captured`` tables whose rows a foreign key changes or deletes, and that key's name."""
    for database, table, key, *rules in session.rows(_FOREIGN_KEYS):
        if not captured(str(database), str(table)):
            continue
        name = TableName(str(database), str(table))
        if None in rules:  # MariaDB shows them to no user that has only SELECT
            is_cascading = _is_shown_to_cascade(session, name, str(key))
        else:
            is_cascading = not _HARMLESS.issuperset(rules)
        if is_cascading:
            yield name, str(key)


def _is_shown_to_cascade(session: Session, table: TableName, key: str) -> bool:
    database, name = (part.replace("`", "``") for part in (table.database, table.table))
    definition = str(session.row(f"SHOW CREATE TABLE `{database}`.`{name}`")[1])
    # InnoDB writes the key's name as it is. What the key does stands at the end, behind all names.
    lines = [line for line in definition.splitlines() if line.lstrip().startswith(f"CONSTRAINT `{key}` FOREIGN KEY")]
    return any(_CASCADES.search(line.rpartition(")")[2]) for line in lines)


def virtual_columns(session: Session, captured: Callable[[str, str], bool]) -> Iterator[tuple[TableName, str]]:
    """The virtual columns of ``captured`` tables that row images may have with an older value: MySQL's."""
    for database, table, column in session.rows(_VIRTUAL_COLUMNS) if not session.is_mariadb else ():
        if captured(str(database), str(table)):
            yield TableName(str(database), str(table)), str(column)


def hashed_tables(session: Session, captured: Callable[[str, str], bool]) -> Iterator[TableName]:
    """The ``captured`` tables whose rows MariaDB writes with `DB_ROW_HASH_1` …: those of a UNIQUE key that is too long
    to be a plain one."""
    for database, table in session.rows(_LONG_UNIQUE_KEYS) if session.is_mariadb else ():
        if captured(str(database), str(table)):
            yield TableName(str(database), str(table))
