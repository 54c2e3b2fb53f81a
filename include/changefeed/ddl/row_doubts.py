"""Changes of rows by ALTER TABLE that may have another result on a copy of the table.

The binlog has the text of DDL, and no row events with the source's values. So a server that executes the text again
numbers the rows in its own order, and calls functions such as UUID() and RAND() again.

Sources: https://dev.mysql.com/doc/refman/9.7/en/replication-features-auto-increment.html,
https://dev.mysql.com/doc/refman/9.7/en/data-type-defaults.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from changefeed.ddl.changes import AddColumn, AlterTable, ChangeColumn
from changefeed.ddl.column_definition import ColumnDefinition
from changefeed.ddl.ddl_statement import DdlStatement
from changefeed.ddl.repeatable import doubt_of_expression
from changefeed.ddl.scanner import Token, TokenKind, scan
from changefeed.ddl.session import Server, SessionContext

_OF_SESSION = {
    **dict.fromkeys(("WEEK", "YEARWEEK"), "default_week_format"),
    **dict.fromkeys(("AES_ENCRYPT", "AES_DECRYPT"), "block_encryption_mode"),
    "CONVERT_TZ": "time zones of its server",
}
"""Functions in generated columns, and the session variable that each uses and that the binlog does not have."""
_REGULAR = frozenset({"REGEXP", "RLIKE", "REGEXP_REPLACE", "REGEXP_SUBSTR", "REGEXP_INSTR"})


@dataclass(frozen=True)
class RowDoubt:
    """The reason why rows may differ, as the end of a sentence that begins with the statement.

    - ``is_of_order``: whether rows are equal if both servers read them in the same order
    - ``numbered``: an existing column in which only rows with NULL or 0 are affected; '' if all rows are
    - ``added``: the column that is not added if it exists (IF NOT EXISTS)
    """

    reason: str
    is_of_order: bool = False
    numbered: str = ""
    added: str = ""


def row_doubts(statement: DdlStatement, server: Server) -> Iterator[RowDoubt]:
    """Yield the doubts about the rows of an ALTER TABLE; nothing for other statements."""
    change = statement.change
    if not isinstance(change, AlterTable):
        return
    words = [token.keyword for token in scan(statement.sql, statement.session, server)]
    by_words = ("ORDER", "BY") in pairwise(words)
    if ("IGNORE", "TABLE") in pairwise(words):
        yield RowDoubt("it keeps the first of the rows with equal keys (IGNORE)", is_of_order=not by_words)
    if any(word in ("DISCARD", "IMPORT") and then in ("TABLESPACE", "PARTITION") for word, then in pairwise(words)):
        yield RowDoubt("it reads its rows from a file of the source's machine (TABLESPACE)")
    for action in change.actions:
        if isinstance(action, AddColumn | ChangeColumn):
            numbered = action.old if isinstance(action, ChangeColumn) else ""
            added = action.column.name if isinstance(action, AddColumn) and action.if_not_exists else ""
            if action.column.auto_increment:
                reason = f"it numbers the rows in the order in which the server has them ({action.column.name})"
                yield RowDoubt(reason, not by_words, numbered, added)
            if reason := _doubt_of_values(action.column, statement.session, server, is_new=not numbered):
                yield RowDoubt(f"it gives the rows {action.column.name}: {reason}", added=added)


def _doubt_of_values(column: ColumnDefinition, session: SessionContext, server: Server, *, is_new: bool) -> str:
    if column.stored:
        return _doubt_of_generated(list(scan(column.expression, session, server)), server)
    if not is_new or column.generated or column.default is None or column.default.is_literal:
        return ""
    return doubt_of_expression(column.default.sql, session, server)


def _doubt_of_generated(tokens: list[Token], server: Server) -> str:
    """The doubt about a generated column. Servers allow only functions that are deterministic in a session."""
    for token, following in pairwise(tokens):
        if token.kind is TokenKind.SYMBOL and token.text == "/":
            return "the binlog does not have its div_precision_increment (/)"
        called = token.keyword if following.text == "(" else ""
        if called in _OF_SESSION:
            return f"the binlog does not have its {_OF_SESSION[called]} ({called})"
        if server.is_mariadb and token.keyword in _REGULAR:
            return f"the binlog does not have its default_regex_flags ({token.keyword})"
    return ""
