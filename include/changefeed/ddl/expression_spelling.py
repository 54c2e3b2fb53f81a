"""One spelling of expressions, for texts of servers and of users.

`DEFAULT (CONCAT('a',1+1))` in a statement is ``concat(_utf8mb4\\'a\\',(1 + 1))`` in `information_schema`. A schema
from DDL must equal the schema from the server, so changefeed spells both as sqlglot does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlglot import exp

LONGEST = 1000


def expression_spelling(sql: str) -> str:
    """``sql`` in sqlglot's spelling of MySQL: functions in lower case, parentheses around operations, unquoted names.

    The result is for comparison and display. A server may not accept it, because names have no quotes.

    Two kinds of expressions are returned unchanged: those that sqlglot cannot read, such as MariaDB's NEXT VALUE FOR,
    and those longer than LONGEST characters. Users write these expressions, a thousand columns may each have one, and
    sqlglot needs a tenth of a second for one of that length.
    """
    import sqlglot  # imported here: loading takes 0.2 seconds, and few expressions are read
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if len(sql) > LONGEST:
        return sql
    try:
        return _spelling(exp.Paren(this=sqlglot.parse_one(sql.replace("\\'", "'"), read="mysql")))
    except (SqlglotError, RecursionError):  # e.g. for 40 nested parentheses
        return sql


def _spelling(root: exp.Paren) -> str:
    from sqlglot import exp

    for node in _deepest_first(root.this, exp.Paren, exp.Introducer):
        node.replace(node.this if isinstance(node, exp.Paren) else node.expression)
    for node in _deepest_first(root.this, exp.Binary):
        if node.parent is not root:
            around = exp.Paren()
            node.replace(around)
            around.set("this", node)
    for name in root.find_all(exp.Identifier):
        name.set("quoted", False)
    return str(root.this.sql("mysql", normalize_functions="lower"))


def _deepest_first(root: exp.Expression, *kinds: type[Any]) -> list[Any]:
    return list(root.find_all(*kinds))[::-1]
