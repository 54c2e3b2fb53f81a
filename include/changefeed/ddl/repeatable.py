"""Checks whether a change in statement format has the same effect on a copy of its table.

- The effect is the same for INSERT and REPLACE of values, and for UPDATE and DELETE of one table, if their expressions
  have only literals, the table's own columns, and session values of the binlog.
- It is doubtful if a statement reads other tables, depends on the order of rows, or calls a function that is not in
  this module's list.

Source: https://dev.mysql.com/doc/refman/9.7/en/replication-rbr-safe-unsafe.html
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from changefeed.ddl.scanner import Token, TokenKind, UnreadableStatement, scan
from changefeed.ddl.session import Server, SessionContext

_FIRST_WORDS = ("INSERT", "REPLACE", "UPDATE", "DELETE")
_REFUSED = {
    **dict.fromkeys(("SELECT", "WITH", "TABLE", "JOIN", "STRAIGHT_JOIN", "USING"), "it reads other tables"),
    **dict.fromkeys(("LIMIT", "IGNORE"), "which rows it changes depends on their order"),
    **dict.fromkeys(("CURRENT_USER", "DELAYED", "RETURNING", "FOR"), "it is more than a change of rows"),
    **dict.fromkeys(("CURRENT_ROLE", "ROWNUM"), "it is a function"),
}
_OPERATORS = frozenset(
    {
        *("VALUES", "VALUE", "IN", "AND", "OR", "NOT", "XOR", "SET", "WHERE", "BETWEEN", "LIKE", "ESCAPE"),
        *("RLIKE", "REGEXP", "IS", "DIV", "MOD", "CASE", "WHEN", "THEN", "ELSE", "INTERVAL", "BY"),
        *("AS", "KEY", "UPDATE", "AGAINST", "BINARY", "COLLATE"),
    }
)
"""Words that parentheses may follow, and that are no functions."""
_FUNCTIONS = frozenset(
    {
        *("ABS", "CEIL", "CEILING", "FLOOR", "ROUND", "TRUNCATE", "MOD", "POW", "POWER", "SQRT", "SIGN"),
        *("GREATEST", "LEAST", "COALESCE", "IFNULL", "NULLIF", "IF", "CONCAT", "CONCAT_WS", "LOWER", "LCASE"),
        *("UPPER", "UCASE", "LEFT", "RIGHT", "SUBSTRING", "SUBSTR", "MID", "TRIM", "LTRIM", "RTRIM", "LPAD"),
        *("RPAD", "REPLACE", "REVERSE", "REPEAT", "SPACE", "INSERT", "LENGTH", "OCTET_LENGTH", "CHAR_LENGTH"),
        *("CHARACTER_LENGTH", "HEX", "UNHEX", "MD5", "SHA", "SHA1", "SHA2", "CRC32", "CAST", "CONVERT"),
        *("CHAR", "ASCII", "ORD", "INSTR", "LOCATE", "POSITION", "FIELD", "ELT", "FIND_IN_SET", "VALUES"),
        *("VALUE", "DEFAULT", "LAST_INSERT_ID", "NOW", "CURRENT_TIMESTAMP", "CURDATE", "CURRENT_DATE"),
        *("CURTIME", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP"),
        *("UNIX_TIMESTAMP", "FROM_UNIXTIME", "DATE", "TIME", "TIMESTAMP", "YEAR", "MONTH", "DAY"),
        *("DAYOFMONTH", "HOUR", "MINUTE", "SECOND", "MICROSECOND", "DATE_ADD", "DATE_SUB", "ADDDATE"),
        *("SUBDATE", "ADDTIME", "SUBTIME", "DATEDIFF", "TIMESTAMPDIFF", "TIMESTAMPADD", "MAKEDATE"),
        *("MAKETIME", "TO_DAYS", "FROM_DAYS", "LAST_DAY", "EXTRACT", "JSON_OBJECT", "JSON_ARRAY", "JSON_SET"),
        *("JSON_INSERT", "JSON_REPLACE", "JSON_REMOVE", "JSON_EXTRACT", "JSON_UNQUOTE", "JSON_QUOTE"),
        *("INET_ATON", "INET_NTOA", "INET6_ATON", "INET6_NTOA", "UUID_TO_BIN", "BIN_TO_UUID"),
        *("ST_GEOMFROMTEXT", "POINT", "DECIMAL", "SIGNED", "UNSIGNED", "DATETIME", "NCHAR", "BINARY"),
        *("VARCHAR",),
    }
)
"""Deterministic functions, and the types of CAST."""
_CALLED_BARE = frozenset(
    {
        *("CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "SYSTEM_USER", "ROWNUM", "SYSDATE"),
        *("NEXT", "PREVIOUS", "NEXTVAL", "CURRVAL", "LASTVAL", "SYS_GUID"),
    }
)
"""Functions that are called without parentheses and return changing values; also `NEXT VALUE FOR`, and `s.NEXTVAL` in
sql_mode ORACLE."""
_NO_TOKEN = Token(TokenKind.END, "", 0, 0)
_MATCHES = frozenset({"REGEXP", "RLIKE"})
"""Operators that depend on `default_regex_flags`. Only MariaDB has this variable."""
_GIVEN_ONCE = frozenset({"RAND"})
"""Functions that return the same results if they are called in the same order. They are allowed in values of INSERT."""


def doubt_of_repeat(
    sql: str, session: SessionContext, server: Server, variables: frozenset[str], *, one_unique_key: bool
) -> str:
    """The reason why ``sql`` may have another effect on a copy of its table; '' if there is none.

    ``variables`` has the names, in lower case, of user variables with known values. ``one_unique_key`` says that the
    table has at most one unique key.
    """
    try:
        tokens = [token for token in scan(sql, session, server) if token.kind is not TokenKind.END]
    except UnreadableStatement as error:
        return f"it cannot be read: {error}"
    words = [token.keyword for token in tokens]
    if not words or words[0] not in _FIRST_WORDS:
        return "it is not INSERT, REPLACE, UPDATE or DELETE"
    for word in words:
        if word in _REFUSED:
            return f"{_REFUSED[word]} ({word})"
        if word in _MATCHES and server.is_mariadb:
            return f"the binlog does not have its default_regex_flags ({word})"
    if ("WEEK", "FROM") in pairwise(words):
        return "the binlog does not have its default_week_format (EXTRACT(WEEK FROM ...))"
    if words[0] in ("UPDATE", "DELETE") and not _names_one_table(tokens):
        return "it reads other tables"
    if "DUPLICATE" in words and not one_unique_key:
        return "the row that ON DUPLICATE KEY UPDATE changes depends on the order of its table's keys"
    is_insert = words[0] in ("INSERT", "REPLACE")
    return (
        _doubt_of_calls(tokens, is_insert=is_insert)
        or _doubt_of_symbols(tokens, variables)
        or _doubt_of_introducers(tokens)
    )


def doubt_of_expression(sql: str, session: SessionContext, server: Server) -> str:
    """The reason why the expression ``sql`` of a default may have another value on a copy; '' if there is none."""
    try:
        tokens = [token for token in scan(sql, session, server) if token.kind is not TokenKind.END]
    except UnreadableStatement as error:
        return f"its expression cannot be read: {error}"
    if called := sorted({token.keyword for token in tokens} & _CALLED_BARE):
        return f"it calls {called[0]!r}, which is not known to be deterministic"
    return _doubt_of_calls([_NO_TOKEN, *tokens], is_insert=False) or _doubt_of_symbols(tokens, frozenset())


def doubt_of_numbers(
    sql: str, session: SessionContext, server: Server, columns: Sequence[str], auto_increment: str
) -> str:
    """The reason why AUTO_INCREMENT may assign other numbers on a copy to rows of INSERT or REPLACE; '' if none.

    The binlog has only the first generated number. Numbers after an explicit one depend on numbers of other sessions.
    ``columns`` are the columns of VALUES if the text names none.
    """
    tokens = [token for token in scan(sql, session, server) if token.kind is not TokenKind.END]
    values = next((number for number, token in enumerate(tokens) if token.keyword in ("VALUES", "VALUE")), len(tokens))
    named = _items(tokens, _end_of_target(tokens) - 1)
    names = [item[0].text.lower() for item in named if item] or [column.lower() for column in columns]
    rows, at = [], values + 1
    while at < len(tokens) and _is_symbol(tokens[at], "("):
        rows.append(_items(tokens, at))
        at += sum(map(len, rows[-1])) + max(len(rows[-1]) - 1, 0) + 2
        at += at < len(tokens) and _is_symbol(tokens[at], ",")
    if len(rows) < 2 or auto_increment.lower() not in names:
        return ""
    place = names.index(auto_increment.lower())
    if all(row == [[]] or (len(row) == len(names) and _is_generated(row[place])) for row in rows):
        return ""
    return f"some of its rows have a number of their own for {auto_increment}, and others one of AUTO_INCREMENT"


def _items(tokens: list[Token], at: int) -> list[list[Token]]:
    """The comma-separated items in the parentheses that begin at ``at``; [] without parentheses."""
    if at >= len(tokens) or not _is_symbol(tokens[at], "("):
        return []
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[at:]:
        depth += _is_symbol(token, "(") - _is_symbol(token, ")")
        if depth == 0:
            break
        if depth == 1 and _is_symbol(token, ","):
            items.append([])
        elif depth > 1 or not _is_symbol(token, "("):
            items[-1].append(token)
    return items


def _is_generated(item: list[Token]) -> bool:
    return len(item) == 1 and (item[0].keyword in ("NULL", "DEFAULT") or item[0].text == "0")


def _is_symbol(token: Token, text: str) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text == text


def _names_one_table(tokens: list[Token]) -> bool:
    """Whether the statement names one table before SET or WHERE, as in `UPDATE t AS x` and `DELETE FROM t`."""
    for token in tokens[1:]:
        if token.keyword in ("SET", "WHERE", "ORDER"):
            break
        if token.text in (",", "(") and token.kind is TokenKind.SYMBOL:
            return False
    words = [token.keyword for token in tokens[1:4] if token.keyword not in ("LOW_PRIORITY", "QUICK")]
    return tokens[0].keyword == "UPDATE" or words[:1] == ["FROM"]


def _doubt_of_calls(tokens: list[Token], *, is_insert: bool) -> str:
    target = _end_of_target(tokens) if is_insert else 0
    for number in range(max(target, 1), len(tokens)):
        token, before = tokens[number], tokens[number - 1]
        if token.text != "(" or token.kind is not TokenKind.SYMBOL:
            continue
        if before.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            continue
        is_qualified = number > 1 and tokens[number - 2].text == "."
        known = _FUNCTIONS | _OPERATORS | (_GIVEN_ONCE if is_insert else frozenset())
        if is_qualified or before.kind is TokenKind.QUOTED or before.keyword not in known:
            return f"it calls {before.text!r}, which is not known to be deterministic"
    return ""


def _end_of_target(tokens: list[Token]) -> int:
    """The index after the table of INSERT and REPLACE, and after the opening parenthesis of its column list."""
    number = 1
    while number < len(tokens) and tokens[number].keyword in ("INTO", "LOW_PRIORITY", "HIGH_PRIORITY"):
        number += 1
    number += 1
    if number < len(tokens) and tokens[number].text == ".":
        number += 2
    return number + 1


def _doubt_of_symbols(tokens: list[Token], variables: frozenset[str]) -> str:
    for number, token in enumerate(tokens):
        if token.kind is not TokenKind.SYMBOL:
            continue
        if token.text == ":=":
            return "it assigns a user variable"
        if token.text == "/":
            return "the binlog does not have its div_precision_increment (/)"
        if token.text == "@":
            name = tokens[number + 1].text.lower() if number + 1 < len(tokens) else ""
            if name not in variables:
                return f"it reads the variable @{name}, whose value is not in the binlog"
    return ""


def _doubt_of_introducers(tokens: list[Token]) -> str:
    for word, text in pairwise(tokens):
        introduces = word.text.startswith("_") or word.keyword == "N"
        if word.kind is TokenKind.WORD and introduces and text.kind is TokenKind.STRING and not text.text.isascii():
            return f"the bytes after {word.text} were in its client's charset, and are not in the text"
    return ""
