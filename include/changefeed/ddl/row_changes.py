"""The tables that a change in statement format writes.

INSERT, REPLACE and LOAD DATA name their table in the first words, which are read here: such a statement may be
megabytes long. UPDATE and DELETE of several tables are read with sqlglot; what it cannot parse goes to a scan that
finds all tables of the statement's outer level.

Sources: https://dev.mysql.com/doc/refman/9.7/en/update.html, https://dev.mysql.com/doc/refman/9.7/en/delete.html
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from changefeed.ddl.cursor import Cursor
from changefeed.ddl.names import TableName
from changefeed.ddl.scanner import Token, TokenKind, UnreadableStatement

_MODIFIERS = frozenset({"LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "QUICK", "CONCURRENT", "LOCAL"})


def written_tables(cursor: Cursor) -> tuple[TableName, ...]:
    """Tables that the statement changes, in the order of their names in it.

    () where they cannot be told: a SELECT, DO or CALL of a function that writes. Where a column of UPDATE does not say
    whose it is, all tables of the statement are given. Raises nothing.
    """
    try:
        return tuple(dict.fromkeys(_written(cursor)))
    except UnreadableStatement:
        return ()


def _written(cursor: Cursor) -> list[TableName]:
    mark = cursor.mark()
    match cursor.advance().keyword:
        case "INSERT" | "REPLACE":
            _modifiers(cursor)
            cursor.one_of("INTO")
            return [cursor.table()]
        case "LOAD":
            while not cursor.word("INTO", "TABLE"):
                cursor.advance()
            return [cursor.table()]
        case "UPDATE" | "DELETE" | "WITH":
            cursor.go_back(mark)
            return _from_ast(cursor) or _from_scan(cursor)
    return []


def _modifiers(cursor: Cursor) -> None:
    while cursor.token.keyword in _MODIFIERS:
        cursor.advance()


# --- with sqlglot


def _from_ast(cursor: Cursor) -> list[TableName]:
    """Tables as sqlglot sees them; [] where it cannot read the statement."""
    try:
        statement = sqlglot.parse_one(_plain_sql(cursor), read="mysql")
    except SqlglotError:
        return []
    if isinstance(statement, exp.Update):
        return _updated(statement, cursor)
    if isinstance(statement, exp.Delete):
        return _deleted(statement, cursor)
    return []


def _plain_sql(cursor: Cursor) -> str:
    """The statement's tokens in the spelling of the default sql_mode, without modifiers that sqlglot does not know."""
    mark = cursor.mark()
    parts: list[str] = []
    while not cursor.at_end:
        token = cursor.advance()
        if token.keyword not in _MODIFIERS or len(parts) > 3:
            parts.append(_spelled(token, cursor.sql))
    cursor.go_back(mark)
    return " ".join(parts)


def _spelled(token: Token, sql: str) -> str:
    if token.kind is TokenKind.QUOTED:
        return "`" + token.text.replace("`", "``") + "`"
    if token.kind is TokenKind.STRING:
        return "'" + token.text.replace("\\", "\\\\").replace("'", "''") + "'"
    return sql[token.start : token.end]


def _outer_tables(statement: exp.Expression) -> Iterator[exp.Table]:
    """Tables of the statement's own FROM and JOINs, not of its subqueries and CTEs."""
    for table in statement.find_all(exp.Table):
        parent = table.parent
        while parent is not None and parent is not statement:
            if isinstance(parent, exp.Query | exp.Subquery | exp.CTE):
                break
            parent = parent.parent
        if parent is statement:
            yield table


def _table_name(table: exp.Table, cursor: Cursor) -> TableName:
    server = cursor.server
    return TableName(server.table_name(table.db or cursor.session.database), server.table_name(table.name))


def _aliases(statement: exp.Expression, cursor: Cursor) -> dict[str, TableName]:
    return {table.alias_or_name.lower(): _table_name(table, cursor) for table in _outer_tables(statement)}


def _updated(statement: exp.Update, cursor: Cursor) -> list[TableName]:
    aliases = _aliases(statement, cursor)
    ctes = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    everything = [name for alias, name in aliases.items() if alias not in ctes]
    found: list[TableName] = []
    for assignment in statement.expressions:
        target = assignment.this if isinstance(assignment, exp.EQ) else None
        owner = target.table.lower() if isinstance(target, exp.Column) else ""
        if owner not in aliases:
            return everything
        found.append(aliases[owner])
    return [name for name in everything if name in found] or everything


def _deleted(statement: exp.Delete, cursor: Cursor) -> list[TableName]:
    targets = statement.args.get("tables") or []
    if not targets:
        if statement.args.get("using"):
            return []
        return [_table_name(statement.this, cursor)] if isinstance(statement.this, exp.Table) else []
    aliases = {table.alias_or_name.lower(): table for table in _outer_tables(statement) if table not in targets}
    found = []
    for target in targets:
        known = None if target.db else aliases.get(target.name.lower())
        found.append(_table_name(known or target, cursor))
    return found


# --- without it


def _from_scan(cursor: Cursor) -> list[TableName]:
    """Tables of the outer level by the words before them; of DELETE's list only those, by name or alias."""
    while not cursor.is_one_of("UPDATE", "DELETE"):
        if cursor.is_symbol("("):
            cursor.parentheses()
        else:
            cursor.advance()
    is_delete = cursor.advance().keyword == "DELETE"
    _modifiers(cursor)
    targets: list[TableName] = []
    from_list = is_delete and cursor.one_of("FROM") != ""
    if is_delete:
        targets = _targets(cursor)
        if not cursor.one_of("USING" if from_list else "FROM"):
            return targets
    references = _references(cursor)
    if not is_delete:
        return list(references.values())
    return [references.get(target.table.lower(), target) for target in targets]


def _targets(cursor: Cursor) -> list[TableName]:
    found = []
    while True:
        name = cursor.table()
        if cursor.symbol("."):
            cursor.expect_symbol("*")
        found.append(name)
        if not cursor.symbol(","):
            return found


def _references(cursor: Cursor) -> dict[str, TableName]:
    """Alias, or name, in lower case -> table, up to SET or WHERE."""
    found: dict[str, TableName] = {}
    expects_table = True
    while not cursor.at_end and not cursor.is_one_of("SET", "WHERE"):
        if expects_table and cursor.is_kind(TokenKind.WORD, TokenKind.QUOTED):
            name = cursor.table()
            cursor.one_of("AS")
            is_alias = cursor.is_kind(TokenKind.QUOTED) or cursor.token.keyword not in _AFTER_TABLE
            alias = cursor.advance().text if is_alias and not cursor.is_kind(TokenKind.SYMBOL) else name.table
            found[alias.lower()] = name
            expects_table = False
        elif cursor.is_symbol("(") and not expects_table:
            cursor.parentheses()
        elif cursor.is_symbol("(") and cursor.ahead(1).keyword in ("SELECT", "WITH", "VALUES"):
            cursor.parentheses()
            expects_table = False
        else:
            token = cursor.advance()
            if token.text == "," or token.keyword in ("JOIN", "STRAIGHT_JOIN"):
                expects_table = True
    return found


_AFTER_TABLE = frozenset(
    {
        *("SET", "WHERE", "JOIN", "INNER", "LEFT", "RIGHT", "CROSS", "NATURAL", "STRAIGHT_JOIN", "ON", "USING"),
        *("PARTITION", "USE", "FORCE", "IGNORE", "ORDER", "LIMIT"),
    }
)
