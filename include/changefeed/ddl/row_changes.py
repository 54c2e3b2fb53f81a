"""The tables that a change in statement format writes.

- INSERT, REPLACE and LOAD DATA name their table in the first words.
- UPDATE may name several tables. It writes those whose columns SET assigns.
- DELETE may name several tables. It writes those between DELETE and FROM.

Why not sqlglot: this grammar reads all 67 UPDATE and DELETE statements of `tests/unit/ddl/golden/row_changes.txt`,
which come from the manuals of both servers, and sqlglot 30.30 reads 49. It has no syntax tree for STRAIGHT_JOIN, DELETE
FROM … USING, index hints, `:=` and MariaDB's clauses, and finds the wrong table for joins in parentheses.
`expression_spelling` still uses sqlglot.

Sources: https://dev.mysql.com/doc/refman/9.7/en/update.html, https://dev.mysql.com/doc/refman/9.7/en/delete.html,
https://dev.mysql.com/doc/refman/9.7/en/join.html, https://mariadb.com/kb/en/delete/
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.ddl.cursor import Cursor
from changefeed.ddl.names import TableName
from changefeed.ddl.scanner import TokenKind, UnreadableStatement

_MODIFIERS = frozenset({"LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "QUICK", "CONCURRENT", "LOCAL"})
_AFTER_REFERENCES = ("SET", "WHERE", "ORDER", "LIMIT", "RETURNING")
_AFTER_TABLE = frozenset(
    {
        *_AFTER_REFERENCES,
        *("JOIN", "INNER", "LEFT", "RIGHT", "CROSS", "NATURAL", "STRAIGHT_JOIN", "ON", "USING"),
        *("PARTITION", "USE", "FORCE", "IGNORE", "FOR", "BEFORE"),
    }
)
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE")


def written_tables(cursor: Cursor) -> tuple[TableName, ...]:
    """The tables that the statement changes, in the order of their names in the text. Raises nothing.

    () if the text does not name them, as in SELECT, DO or CALL of a function that writes. If UPDATE assigns a column
    without the name of its table, all tables of the statement.
    """
    try:
        return tuple(dict.fromkeys(_written_tables(cursor)))
    except UnreadableStatement:
        return ()


def _written_tables(cursor: Cursor) -> list[TableName]:
    match cursor.advance().keyword:
        case "INSERT" | "REPLACE":
            _modifiers(cursor)
            cursor.one_of("INTO")
            return [cursor.table()]
        case "LOAD":
            while not cursor.word("INTO", "TABLE"):
                cursor.advance()
            return [cursor.table()]
        case "UPDATE":
            return _updated_tables(cursor, frozenset())
        case "DELETE":
            return _deleted_tables(cursor, frozenset())
        case "WITH":
            ctes = _ctes(cursor)
            if cursor.one_of("UPDATE"):
                return _updated_tables(cursor, ctes)
            return _deleted_tables(cursor, ctes) if cursor.one_of("DELETE") else []
    return []


def _modifiers(cursor: Cursor) -> None:
    while cursor.token.keyword in _MODIFIERS:
        cursor.advance()


def _ctes(cursor: Cursor) -> frozenset[str]:
    """The names, in lower case, of `WITH [RECURSIVE] name [(columns)] AS (query), …`."""
    names = set()
    cursor.one_of("RECURSIVE")
    while True:
        names.add(cursor.identifier().lower())
        if cursor.is_symbol("("):
            cursor.parentheses()
        cursor.expect("AS")
        cursor.parentheses()
        if not cursor.symbol(","):
            return frozenset(names)


@dataclass(frozen=True)
class _Name:
    """A table's name as written; ``database`` may be ''."""

    database: str
    table: str


def _name(cursor: Cursor) -> _Name:
    first = cursor.identifier()
    return _Name(first, cursor.identifier()) if cursor.symbol(".") else _Name("", first)


class _References:
    """The tables of a FROM or UPDATE by their aliases in the statement."""

    def __init__(self, cursor: Cursor, ctes: frozenset[str]) -> None:
        self._server, self._session = cursor.server, cursor.session
        self._by_alias: dict[str, TableName | None] = {}
        """The tables by name in lower case; None for a derived table, which cannot be written."""
        self._read(cursor, ctes)

    def tables(self) -> list[TableName]:
        return [table for table in self._by_alias.values() if table is not None]

    def full(self, name: _Name) -> TableName:
        database = name.database or self._session.database
        return TableName(self._server.table_name(database), self._server.table_name(name.table))

    def table(self, name: _Name) -> TableName | None:
        """The table that ``name`` refers to; None if it is none of these tables."""
        if not name.database:
            return self._by_alias.get(name.table.lower())
        full = self.full(name)
        return full if full in self._by_alias.values() else None

    def _read(self, cursor: Cursor, ctes: frozenset[str]) -> None:
        """Read up to SET, WHERE or the end. Parentheses around joins are ignored, other parentheses are skipped."""
        expects_table = True
        while not cursor.at_end and not cursor.is_one_of(*_AFTER_REFERENCES):
            if not expects_table:
                expects_table = _reaches_table(cursor)
            elif cursor.one_of("LATERAL") or cursor.symbol("{"):
                cursor.one_of("OJ")
            elif cursor.is_symbol("(") and cursor.ahead(1).keyword not in _QUERIES:
                cursor.advance()
            else:
                self._take(cursor, ctes)
                expects_table = False

    def _take(self, cursor: Cursor, ctes: frozenset[str]) -> None:
        """Read a table or a derived table, and its alias."""
        table, alias = None, ""
        if cursor.is_symbol("("):
            cursor.parentheses()
        elif cursor.is_symbol("(", 1):  # JSON_TABLE(…)
            cursor.advance()
            cursor.parentheses()
        else:
            name = _name(cursor)
            alias = name.table
            if name.database or alias.lower() not in ctes:
                table = self.full(name)
            if cursor.one_of("PARTITION"):
                cursor.parentheses()
        has_alias = cursor.one_of("AS") or cursor.is_kind(TokenKind.QUOTED)
        if has_alias or (cursor.is_kind(TokenKind.WORD) and cursor.token.keyword not in _AFTER_TABLE):
            alias = cursor.identifier()
        self._by_alias[alias.lower()] = table


def _reaches_table(cursor: Cursor) -> bool:
    """Skip a token, or a pair of parentheses, between tables. Returns whether a table follows."""
    if cursor.is_symbol("("):
        cursor.parentheses()
        return False
    if cursor.word("FOR", "JOIN"):  # of an index hint
        return False
    token = cursor.advance()
    return (token.kind is TokenKind.SYMBOL and token.text == ",") or token.keyword in ("JOIN", "STRAIGHT_JOIN")


def _updated_tables(cursor: Cursor, ctes: frozenset[str]) -> list[TableName]:
    _modifiers(cursor)
    references = _References(cursor, ctes)
    everything = references.tables()
    cursor.expect("SET")
    written = set()
    while True:
        parts = [cursor.identifier()]
        while cursor.symbol("."):
            parts.append(cursor.identifier())
        owner = None if len(parts) == 1 else references.table(_Name(parts[-3] if len(parts) > 2 else "", parts[-2]))
        if owner is None:
            return everything
        written.add(owner)
        while not (cursor.at_end or cursor.is_symbol(",") or cursor.is_one_of("WHERE")):
            if cursor.is_symbol("("):
                cursor.parentheses()
            else:
                cursor.advance()
        if not cursor.symbol(","):
            return [table for table in everything if table in written]


def _deleted_tables(cursor: Cursor, ctes: frozenset[str]) -> list[TableName]:
    _modifiers(cursor)
    if cursor.server.is_mariadb and cursor.is_word("HISTORY", "FROM"):
        cursor.advance()
    from_first = cursor.one_of("FROM") != ""
    targets = [_target(cursor)]
    while cursor.symbol(","):
        targets.append(_target(cursor))
    if not cursor.one_of("USING" if from_first else "FROM"):
        database = targets[0].database or cursor.session.database
        return [TableName(cursor.server.table_name(database), cursor.server.table_name(targets[0].table))]
    references = _References(cursor, ctes)
    return [references.table(target) or references.full(target) for target in targets]


def _target(cursor: Cursor) -> _Name:
    """Take `table` or `database.table`, either with `.*` after it."""
    parts = [cursor.identifier()]
    while cursor.symbol("."):
        if cursor.symbol("*"):
            break
        parts.append(cursor.identifier())
    return _Name(parts[-2] if len(parts) > 1 else "", parts[-1])
