"""Generated columns whose values a server stores: those that the follower works out are compared with the source's.

Neither server takes a value for such a column: it works the value out when the row is written, in the session that
writes. What the expression takes from that session (its time zone, `div_precision_increment`, `lc_time_names`,
`default_week_format`, sql_mode) is in no rows event. So values are compared before they are committed, unless the
expression is known to take nothing from a session.

Source: https://dev.mysql.com/doc/refman/9.7/en/create-table-generated-columns.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime

from changefeed.ddl.scanner import Token, TokenKind, UnreadableStatement, scan
from changefeed.ddl.session import Server, SessionContext
from changefeed.errors import FollowerError
from changefeed.formats.reader import JsonImage
from changefeed.formats.style import Style
from changefeed.formats.typed_values import RowValues, Value
from changefeed.model.identifier import quoted
from changefeed.model.table_schema import Column, TableSchema
from changefeed.replicate.joined_rows import joined
from changefeed.replicate.literals import literal, same
from changefeed.source.mysql.follower_session import FollowerSession

_GENERATED = """
SELECT c.column_name, c.generation_expression, c.extra LIKE '%%STORED GENERATED%%'
OR c.data_type NOT LIKE '%%text' AND c.data_type NOT LIKE '%%blob' AND EXISTS (
SELECT 1 FROM information_schema.statistics s
WHERE s.table_schema = c.table_schema AND s.table_name = c.table_name AND s.column_name = c.column_name)
FROM information_schema.columns c
WHERE c.table_schema = %s AND c.table_name = %s AND c.generation_expression <> ''
"""
"""MySQL may log an older value of a virtual TEXT or BLOB."""
_FUNCTIONS = frozenset(
    {
        *("ABS", "CEIL", "CEILING", "FLOOR", "MOD", "SIGN", "GREATEST", "LEAST", "COALESCE", "IFNULL", "NULLIF", "IF"),
        *("CONCAT", "CONCAT_WS", "LOWER", "LCASE", "UPPER", "UCASE", "LEFT", "RIGHT", "SUBSTRING", "SUBSTR", "TRIM"),
        *("LTRIM", "RTRIM", "REPLACE", "REVERSE", "YEAR", "MONTH", "DAYOFMONTH"),
        *("JSON_EXTRACT", "JSON_UNQUOTE", "JSON_VALID", "JSON_LENGTH"),
    }
)
"""Functions that take nothing from a session. HEX and hashes do: numbers are text in its charset to them."""
_WORDS = frozenset(
    {"AND", "OR", "NOT", "XOR", "IS", "NULL", "TRUE", "FALSE", "CASE", "WHEN", "THEN", "ELSE", "END", "DIV"}
)
_SYMBOLS = frozenset(
    {
        *("+", "-", "*", "%", "(", ")", ",", "=", "<", ">", "<=", ">=", "<>", "!=", "<=>", "&&", "||", "!"),
        *("->", "->>", "&", "|", "^", "~", "<<", ">>"),
    }
)
_READS_OFFSETS = (8, 0, 19)
_INTRODUCERS = frozenset({"_utf8mb4", "_utf8mb3", "_latin1", "_ascii", "_binary"})
_OF_SESSION = frozenset({"timestamp", "time", "char"})
"""Types whose values are read by the session's time zone, its date, or its sql_mode (PAD_CHAR_TO_FULL_LENGTH)."""


class GeneratedColumns:
    """The generated ``columns`` of ``table`` that are compared, whose rows are written in ``style`` to ``server``.

    ``is_zoned`` says that new rows are written in the time zone that the server's own sessions have: where the server
    reads moments with an offset, and rows are told apart by a key that has none of them.
    """

    def __init__(self, table: TableSchema, style: Style, columns: Sequence[Column], server: Server) -> None:
        self._columns, self._values = columns, RowValues(table, style)
        self._name = f"{quoted(table.database)}.{quoted(table.table)}"
        self._what = f"{table.database}.{table.table}"
        key = [table.columns[number] for number in table.primary_key]
        plain = [column for column in table.columns if not column.generated]
        self._told_by = plain if any(column.generated for column in key) or not key else key
        reads_offsets = not server.is_mariadb and server.version >= _READS_OFFSETS
        self.is_zoned = (
            reads_offsets and self._told_by is key and not any(column.data_type == "timestamp" for column in key)
        )

    def check(self, session: FollowerSession, images: Sequence[JsonImage]) -> None:
        """Compare rows that were written in the session's transaction. Raises FollowerError where one has another
        value than the source logged."""
        rows = [row for row in map(self._values.of, images) if any(column.name in row for column in self._columns)]
        other = [f"({self._told(row)} AND NOT COALESCE({self._same(row)}, 0))".encode() for row in rows]
        with session.in_servers_zone() if self.is_zoned else nullcontext():
            for sql, _ in joined(f"SELECT 1 FROM {self._name} WHERE ".encode(), other, b" LIMIT 1", b" OR "):
                if session.rows(sql.decode()):
                    raise next(self._errors(session, rows))

    def _told(self, row: dict[str, Value]) -> str:
        return " AND ".join(same(column, row[column.name]) for column in self._told_by if column.name in row)

    def _same(self, row: dict[str, Value]) -> str:
        return " AND ".join(self._is(column, row[column.name]) for column in self._columns if column.name in row)

    def _is(self, column: Column, value: Value) -> str:
        """The condition that a generated column has ``value``, which of JSON is text: a date within a document, too.
        A TIMESTAMP is told in UTC, whatever the session's time zone."""
        if value is not None and column.data_type == "json":
            return f"({same(column, value)} OR CAST({quoted(column.name)} AS CHAR) = {literal(value)})"
        if isinstance(value, str) and column.data_type == "timestamp" and self.is_zoned:
            return f"UNIX_TIMESTAMP({quoted(column.name)}) = {_seconds(value)}"
        return same(column, value)

    def _errors(self, session: FollowerSession, rows: Sequence[dict[str, Value]]) -> Iterator[FollowerError]:
        for row in rows:
            for column in self._columns:
                if column.name not in row:
                    continue
                is_same = self._is(column, row[column.name])
                found = session.rows(
                    f"SELECT {quoted(column.name)} FROM {self._name} "
                    f"WHERE {self._told(row)} AND NOT COALESCE({is_same}, 0) LIMIT 1"
                )
                if found:
                    yield self._error(column, self._told(row), row[column.name], found[0][0])

    def _error(self, column: Column, told: str, expected: Value, found: object) -> FollowerError:
        zone = "time_zone, " if self.is_zoned else ""
        return FollowerError(
            f"{self._what}: expected {literal(expected)} in the generated column {column.name!r} of the row with "
            f"{told[:200]}, as the source logged it, found {str(found)!r}. A server works the value out when it writes "
            "the row, and what the expression takes from its session (time_zone, div_precision_increment, "
            "lc_time_names, default_week_format, sql_mode) is in no binlog. Nothing of that transaction was kept. Set "
            f"globally on the follower what the source's sessions have of {zone}div_precision_increment, lc_time_names "
            "and default_week_format, and run again. If that does not help, make it a plain column on the source, or "
            "give it an expression that takes nothing from the session; then copy the table to the follower anew, and "
            "give the coordinates of the copy with --from."
        )


def _seconds(value: str) -> str:
    """The seconds since 1970 of a TIMESTAMP in UTC; 0 of the zero timestamp."""
    if value.startswith("0000"):
        return "0"
    moment = datetime.fromisoformat(value).replace(tzinfo=UTC)
    return f"{int(moment.timestamp())}.{moment.microsecond:06}"


def compared_columns(session: FollowerSession, table: TableSchema, server: Server) -> Sequence[Column]:
    """The generated columns of a follower's table that are stored, in rows or in an index, and whose values may depend
    on the session that writes a row."""
    types = {column.name: column.data_type for column in table.columns}
    rows = session.rows(_GENERATED, table.database, table.table)
    expressions = {str(name): _unescaped(str(expression), server) for name, expression, _ in rows}
    doubted = {name for name, expression in expressions.items() if _takes_from_session(expression, types, server)}
    while more := {
        name
        for name, expression in expressions.items()
        if name not in doubted and any(quoted(other) in expression for other in doubted)
    }:
        doubted |= more
    stored = {str(name) for name, _, is_stored in rows if is_stored}
    return [column for column in table.columns if column.name in doubted & stored]


def _unescaped(expression: str, server: Server) -> str:
    """MySQL shows quotes with a backslash before each."""
    return expression if server.is_mariadb else expression.replace("\\'", "'")


def _takes_from_session(expression: str, types: dict[str, str], server: Server) -> bool:
    """Whether an expression, as `information_schema` shows it, may give another value in another session."""
    try:
        tokens = [token for token in scan(expression, SessionContext(), server) if token.kind is not TokenKind.END]
    except UnreadableStatement:
        return True
    return not all(map(_is_same_anywhere, tokens, [*tokens[1:], None], [types] * len(tokens)))


def _is_same_anywhere(token: Token, following: Token | None, types: dict[str, str]) -> bool:
    match token.kind:
        case TokenKind.QUOTED:
            return types.get(token.text, "timestamp") not in _OF_SESSION
        case TokenKind.WORD if following is not None and following.text == "(":
            return token.keyword in _FUNCTIONS | _WORDS
        case TokenKind.WORD:
            return token.keyword in _WORDS or token.text.lower() in _INTRODUCERS
        case TokenKind.SYMBOL:
            return token.text in _SYMBOLS
    return token.kind in (TokenKind.STRING, TokenKind.NUMBER)
