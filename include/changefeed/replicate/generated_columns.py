"""Compares the values of generated columns on the follower with the values that the source logged.

A server computes such a value when a session writes the row, and does not accept a value from the session. The result
may depend on the session's settings: `time_zone`, `div_precision_increment`, `lc_time_names`, `default_week_format`,
`sql_mode`. Row events do not have these settings. So values are compared before the commit, unless the expression is
known not to depend on the session.

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
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column, TableSchema
from changefeed.replicate.literals import literal, value_condition
from changefeed.replicate.merged_rows import join_statements
from changefeed.source.mysql.follower_session import FollowerSession

_GENERATED = """
SELECT c.column_name, c.generation_expression, c.extra LIKE '%%STORED GENERATED%%'
OR c.data_type NOT LIKE '%%text' AND c.data_type NOT LIKE '%%blob' AND EXISTS (
SELECT 1 FROM information_schema.statistics s
WHERE s.table_schema = c.table_schema AND s.table_name = c.table_name AND s.column_name = c.column_name)
FROM information_schema.columns c
WHERE c.table_schema = %s AND c.table_name = %s AND c.generation_expression <> ''
"""
"""The generated columns of a table, and whether they are compared: only if they are stored, or in an index.

Virtual TEXT and BLOB columns are not compared, because MySQL may log an older value.
"""
_FUNCTIONS = frozenset(
    {
        *("ABS", "CEIL", "CEILING", "FLOOR", "MOD", "SIGN", "GREATEST", "LEAST", "COALESCE", "IFNULL", "NULLIF", "IF"),
        *("CONCAT", "CONCAT_WS", "LOWER", "LCASE", "UPPER", "UCASE", "LEFT", "RIGHT", "SUBSTRING", "SUBSTR", "TRIM"),
        *("LTRIM", "RTRIM", "REPLACE", "REVERSE", "YEAR", "MONTH", "DAYOFMONTH"),
        *("JSON_EXTRACT", "JSON_UNQUOTE", "JSON_VALID", "JSON_LENGTH"),
    }
)
"""Functions that do not depend on the session. HEX and hashes depend on it: they read numbers in its charset."""
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
"""Types whose values depend on the session's time zone, date, or sql_mode (PAD_CHAR_TO_FULL_LENGTH)."""


class GeneratedColumns:
    """Compares the generated ``columns`` of ``table``. Images of rows are in ``style``; ``server`` is the follower.

    ``is_zoned`` says whether new rows are written in the server's global time zone. This needs a server that reads
    timestamps with an offset, and a key without timestamps and generated columns.
    """

    def __init__(self, table: TableSchema, style: Style, columns: Sequence[Column], server: Server) -> None:
        self._columns, self._values = columns, RowValues(table, style)
        self._name = f"{quote_name(table.database)}.{quote_name(table.table)}"
        self._what = f"{table.database}.{table.table}"
        key = [table.columns[number] for number in table.primary_key]
        plain = [column for column in table.columns if not column.generated]
        self._identifying_columns = plain if any(column.generated for column in key) or not key else key
        reads_offsets = not server.is_mariadb and server.version >= _READS_OFFSETS
        self.is_zoned = (
            reads_offsets
            and self._identifying_columns is key
            and not any(column.data_type == "timestamp" for column in key)
        )

    def check(self, session: FollowerSession, images: Sequence[JsonImage]) -> None:
        """Compare rows that were written in the session's transaction.

        Raises FollowerError if a value differs from the value that the source logged.
        """
        rows = [row for row in map(self._values.of, images) if any(column.name in row for column in self._columns)]
        other = [
            f"({self._row_condition(row)} AND NOT COALESCE({self._values_condition(row)}, 0))".encode() for row in rows
        ]
        with session.with_server_time_zone() if self.is_zoned else nullcontext():
            for sql, _ in join_statements(f"SELECT 1 FROM {self._name} WHERE ".encode(), other, b" LIMIT 1", b" OR "):
                if session.rows(sql.decode()):
                    raise next(self._errors(session, rows))

    def _row_condition(self, row: dict[str, Value]) -> str:
        return " AND ".join(
            value_condition(column, row[column.name]) for column in self._identifying_columns if column.name in row
        )

    def _values_condition(self, row: dict[str, Value]) -> str:
        return " AND ".join(
            self._value_condition(column, row[column.name]) for column in self._columns if column.name in row
        )

    def _value_condition(self, column: Column, value: Value) -> str:
        """The SQL condition that a generated column has ``value``.

        JSON is also compared as text, for dates within a document. A TIMESTAMP is compared in UTC if rows are written
        in the global time zone.
        """
        if value is not None and column.data_type == "json":
            return f"({value_condition(column, value)} OR CAST({quote_name(column.name)} AS CHAR) = {literal(value)})"
        if isinstance(value, str) and column.data_type == "timestamp" and self.is_zoned:
            return f"UNIX_TIMESTAMP({quote_name(column.name)}) = {_seconds(value)}"
        return value_condition(column, value)

    def _errors(self, session: FollowerSession, rows: Sequence[dict[str, Value]]) -> Iterator[FollowerError]:
        for row in rows:
            for column in self._columns:
                if column.name not in row:
                    continue
                is_same = self._value_condition(column, row[column.name])
                found = session.rows(
                    f"SELECT {quote_name(column.name)} FROM {self._name} "
                    f"WHERE {self._row_condition(row)} AND NOT COALESCE({is_same}, 0) LIMIT 1"
                )
                if found:
                    yield self._error(column, self._row_condition(row), row[column.name], found[0][0])

    def _error(self, column: Column, row_condition: str, expected: Value, found: object) -> FollowerError:
        zone = "time_zone, " if self.is_zoned else ""
        return FollowerError(
            f"{self._what}: expected {literal(expected)} in the generated column {column.name!r} of the row with "
            f"{row_condition[:200]}, as the source logged it, found {str(found)!r}. A server computes the value when "
            "it writes the row, and the settings of that session (time_zone, div_precision_increment, lc_time_names, "
            "default_week_format, sql_mode) are not in the binlog. The transaction was rolled back. Set the global "
            f"{zone}div_precision_increment, lc_time_names and default_week_format of the follower to the values that "
            "the source's sessions have, and run again. If that does not help, make it a plain column on the source, "
            "or give it an expression that does not depend on the session; then copy the table to the follower again, "
            "and give the coordinates of the copy with --from."
        )


def _seconds(value: str) -> str:
    """The seconds since 1970 of a TIMESTAMP in UTC; 0 for the zero timestamp."""
    if value.startswith("0000"):
        return "0"
    moment = datetime.fromisoformat(value).replace(tzinfo=UTC)
    return f"{int(moment.timestamp())}.{moment.microsecond:06}"


def compared_columns(session: FollowerSession, table: TableSchema, server: Server) -> Sequence[Column]:
    """The generated columns to compare: they are stored or in an index, and may depend on the session."""
    types = {column.name: column.data_type for column in table.columns}
    rows = session.rows(_GENERATED, table.database, table.table)
    expressions = {str(name): _unescape(str(expression), server) for name, expression, _ in rows}
    dependent = {name for name, expression in expressions.items() if _depends_on_session(expression, types, server)}
    while more := {
        name
        for name, expression in expressions.items()
        if name not in dependent and any(quote_name(other) in expression for other in dependent)
    }:
        dependent |= more
    stored = {str(name) for name, _, is_stored in rows if is_stored}
    return [column for column in table.columns if column.name in dependent & stored]


def _unescape(expression: str, server: Server) -> str:
    """``expression`` without the backslashes that MySQL shows before quotes."""
    return expression if server.is_mariadb else expression.replace("\\'", "'")


def _depends_on_session(expression: str, types: dict[str, str], server: Server) -> bool:
    """Whether the value of an expression of `information_schema` may depend on the session. True if unreadable."""
    try:
        tokens = [token for token in scan(expression, SessionContext(), server) if token.kind is not TokenKind.END]
    except UnreadableStatement:
        return True
    return not all(map(_is_independent, tokens, [*tokens[1:], None], [types] * len(tokens)))


def _is_independent(token: Token, following: Token | None, types: dict[str, str]) -> bool:
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
