"""The ranges of a table's primary key, by which the rows of a table are divided into chunks.

The server does all comparisons: a boundary is read as text, and is used as a literal of the column's own type, charset
and collation. So a range has the same rows whatever the order of the type is, and each row is in exactly one of the
consecutive ranges.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from changefeed.errors import SchemaError
from changefeed.model.identifier import quote_name
from changefeed.model.key_range import Boundary, KeyRange
from changefeed.model.table_schema import Column, TableSchema
from changefeed.source.mysql.session import Session

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_NUMBERS = _INTEGERS | {"decimal", "year"}
_FLOATS = {"float", "double"}
_BY_NUMBER = {"enum", "set", "bit"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_HEX = re.compile(r"[0-9A-F]*")
_ORDINAL = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DOUBLE = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_TIME_OR_ADDRESS = re.compile(r"[0-9A-Fa-f:. -]+")
_LONG = {"tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob"}
"""A key has only a prefix of values of these types, so a server cannot read along a range."""
_EXACT_LABELS = 53
"""The most labels of a SET that a server compares exactly with a number: it compares them as doubles."""


@dataclass(frozen=True)
class _KeyColumn:
    """A column of a key.

    ``read`` is the SQL expression for a value's text, ``literal`` converts this text to a literal.
    """

    name: str
    read: str
    literal: Callable[[str], str]


@dataclass(frozen=True)
class TableKey:
    """The primary key of ``table``, in the key's own order."""

    table: TableSchema
    columns: tuple[_KeyColumn, ...]

    @classmethod
    def of(cls, table: TableSchema) -> TableKey | None:
        """The key; None for a table without a primary key. Raises SchemaError for a type that keys cannot have."""
        if not table.primary_key:
            return None
        return cls(table, tuple(_key_column(table, table.columns[column]) for column in table.primary_key))

    @property
    def is_walked(self) -> bool:
        """Whether the server can read along a range of the key.

        If it cannot, the table is one chunk: each range would scan the complete table, or have wrong rows."""
        columns = [self.table.columns[column] for column in self.table.primary_key]
        return not any(
            column.data_type in _LONG or (column.data_type == "set" and len(column.labels) > _EXACT_LABELS)
            for column in columns
        )

    @property
    def source(self) -> str:
        """The SQL after FROM: the table, with a hint to read it by its primary key."""
        return f"{quote_name(self.table.database)}.{quote_name(self.table.table)} FORCE INDEX (PRIMARY)"

    def condition(self, within: KeyRange) -> str:
        """The SQL condition of the rows of a range."""
        conditions = []
        if within.after is not None:
            conditions.append(self._beside(">", ">", within.after))
        if within.upto is not None:
            conditions.append(self._beside("<", "<=", within.upto))
        return " AND ".join(conditions) or "TRUE"

    def next_boundary(self, session: Session, after: Boundary | None, rows: int) -> Boundary | None:
        """The key of the ``rows``th row after the boundary ``after``; None if there are fewer rows.

        The server reads along the index to find it, unless the table's last key shows that there are fewer rows.
        """
        if self._has_fewer(session, after, rows):
            return None
        reads = ", ".join(column.read for column in self.columns)
        order = ", ".join(quote_name(column.name) for column in self.columns)
        where = self.condition(KeyRange(after))
        sql = f"SELECT {reads} FROM {self.source} WHERE {where} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"
        found = session.rows(sql)
        return tuple(map(_text, found[0])) if found else None

    def _has_fewer(self, session: Session, after: Boundary | None, rows: int) -> bool:
        """Whether the key is an integer, and there are fewer than ``rows`` integers between ``after`` and the last key.

        Each integer has at most one row, and the server reads an index's first and last key without those in between.
        """
        (column, *more) = self.columns
        if more or self.table.columns[self.table.primary_key[0]].data_type not in _INTEGERS:
            return False
        name = quote_name(column.name)
        ((first, last),) = session.rows(f"SELECT MIN({name}), MAX({name}) FROM {self.source}")
        if last is None:
            return True
        before = int(first) - 1 if after is None else int(after[0])
        return int(last) - before < rows

    def _beside(self, beyond: str, last: str, boundary: Boundary) -> str:
        """The SQL condition that compares the key with a boundary: (a, b) > (x, y) is a > x OR (a = x AND b > y).

        With this form servers read a range of the index; with row constructors they do not.
        """
        condition = ""
        for column, text in reversed(list(zip(self.columns, boundary, strict=True))):
            name, literal = quote_name(column.name), column.literal(text)
            condition = (
                f"({name} {beyond} {literal} OR ({name} = {literal} AND {condition}))"
                if condition
                else f"{name} {last} {literal}"
            )
        return condition


def _key_column(table: TableSchema, column: Column) -> _KeyColumn:
    name = quote_name(column.name)
    kind = column.data_type
    if kind in _NUMBERS:
        return _KeyColumn(column.name, f"CAST({name} AS CHAR)", _literal(_NUMBER))
    if kind in _FLOATS:  # read as a double, whose text has all digits
        return _KeyColumn(column.name, f"CAST({name} + 0e0 AS CHAR)", _double)
    if kind in _BY_NUMBER:
        return _KeyColumn(column.name, f"CAST(CAST({name} AS UNSIGNED) AS CHAR)", _literal(_ORDINAL))
    if kind in _BYTES:
        return _KeyColumn(column.name, f"HEX({name})", _literal(_HEX, "_binary X'{}'"))
    if column.collation is not None:
        charset, collation = column.collation.partition("_")[0], column.collation
        return _KeyColumn(column.name, f"HEX({name})", _literal(_HEX, f"_{charset} X'{{}}' COLLATE {collation}"))
    if kind in ("date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"):
        return _KeyColumn(column.name, f"CAST({name} AS CHAR)", _literal(_TIME_OR_ADDRESS, "'{}'"))
    raise SchemaError(
        f"{table.database}.{table.table} has column {column.name!r}, a {kind}, in its primary key: its rows cannot be "
        "read in ranges of it. Exclude the table from the snapshot."
    )


def _literal(form: re.Pattern[str], sql: str = "{}") -> Callable[[str], str]:
    """A function that converts a text of the ``form`` in which servers write a type's values into the literal ``sql``.

    It raises SchemaError for any other text. Boundaries come from the commit log, to which others may have written, and
    become SQL.
    """

    def literal(text: str) -> str:
        if not form.fullmatch(text):
            raise SchemaError(
                "expected a primary key value in a server's spelling at the end of a chunk, found another text: "
                "another program has written to the commit log. It was not used. Restrict who may write to that topic, "
                "and start a new snapshot."
            )
        return sql.format(text)

    return literal


def _double(text: str) -> str:
    number = _literal(_DOUBLE)(text)
    return number if "e" in number else f"{number}e0"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
