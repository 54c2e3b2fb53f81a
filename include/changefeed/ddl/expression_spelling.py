"""One spelling for an expression, whoever wrote it.

`DEFAULT (CONCAT('a',1+1))` in a statement is ``concat(_utf8mb4\\'a\\',(1 + 1))`` in `information_schema`. A schema that
was followed and one that was learned from the server should be equal, so both spell expressions as sqlglot does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlglot import exp

LONGEST = 1000


def expression_spelling(sql: str) -> str:
    """``sql`` in sqlglot's spelling of MySQL: functions in lower case, parentheses around each operation, names bare.

    It is for comparing and for showing, not for a server: of a name that needs its quotes they are gone too.

    An expression that sqlglot cannot read, such as MariaDB's NEXT VALUE FOR, comes back as it is, and so does one of
    more than LONGEST characters: whoever may create a table writes it, a thousand columns may have one each, and
    sqlglot takes a tenth of a second for this many.
    """
    import sqlglot  # few expressions are read, and it takes a run 0.2 seconds to load
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if len(sql) > LONGEST:
        return sql
    try:
        return _spelling(exp.Paren(this=sqlglot.parse_one(sql.replace("\\'", "'"), read="mysql")))
    except (SqlglotError, RecursionError):  # 40 parentheses in one another are too many for it
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
