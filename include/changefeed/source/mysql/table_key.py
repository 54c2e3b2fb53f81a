"""A table's primary key, and ranges of it: how a table is cut into chunks that its server tells apart.

All comparing is the server's: a boundary is read out of the table as text, and comes back to the server as a literal of
the column's own type, charset and collation. So a range holds the same rows whatever the type orders by, and each row
is in one of the ranges that follow one another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from changefeed.errors import SchemaError
from changefeed.model.identifier import quoted
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
"""They are in a key by a prefix only, by which the server cannot walk along a range."""


@dataclass(frozen=True)
class _KeyColumn:
    """``read``: the expression of a value's text; ``literal`` makes of that text what the column is compared with."""

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
        """The key; None for a table without a primary key. Raises SchemaError for a type that no key has."""
        if not table.primary_key:
            return None
        return cls(table, tuple(_key_column(table, table.columns[column]) for column in table.primary_key))

    @property
    def is_walked(self) -> bool:
        """Whether the server reads along a range of the key; else the table is one chunk, as each range of it would be
        all of the table once more."""
        return not any(self.table.columns[column].data_type in _LONG for column in self.table.primary_key)

    @property
    def source(self) -> str:
        """What stands behind FROM: the table, read by its primary key."""
        return f"{quoted(self.table.database)}.{quoted(self.table.table)} FORCE INDEX (PRIMARY)"

    def condition(self, within: KeyRange) -> str:
        """The SQL condition of the rows of a range."""
        conditions = []
        if within.after is not None:
            conditions.append(self._beside(">", ">", within.after))
        if within.upto is not None:
            conditions.append(self._beside("<", "<=", within.upto))
        return " AND ".join(conditions) or "TRUE"

    def next_boundary(self, session: Session, after: Boundary | None, rows: int) -> Boundary | None:
        """The key of the row that is the ``rows``th behind ``after``; None where there are not as many.

        The server walks along the index for it, unless the table's last key says
        that there cannot be as many.
        """
        if self._has_fewer(session, after, rows):
            return None
        reads = ", ".join(column.read for column in self.columns)
        order = ", ".join(quoted(column.name) for column in self.columns)
        where = self.condition(KeyRange(after))
        sql = f"SELECT {reads} FROM {self.source} WHERE {where} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"
        found = session.rows(sql)
        return tuple(map(_text, found[0])) if found else None

    def _has_fewer(self, session: Session, after: Boundary | None, rows: int) -> bool:
        """Whether the key is an integer, and fewer than ``rows`` integers are behind ``after``, up to the table's last.

        Each is one row's at most, and the server reads an index's first and last key without what lies between.
        """
        (column, *more) = self.columns
        if more or self.table.columns[self.table.primary_key[0]].data_type not in _INTEGERS:
            return False
        name = quoted(column.name)
        ((first, last),) = session.rows(f"SELECT MIN({name}), MAX({name}) FROM {self.source}")
        if last is None:
            return True
        before = int(first) - 1 if after is None else int(after[0])
        return int(last) - before < rows

    def _beside(self, beyond: str, last: str, boundary: Boundary) -> str:
        """Row by row as the index orders them: (a, b) > (x, y) is a > x OR (a = x AND b > y).

        Servers find the range of an index in this form, and not in that of row constructors.
        """
        condition = ""
        for column, text in reversed(list(zip(self.columns, boundary, strict=True))):
            name, literal = quoted(column.name), column.literal(text)
            condition = (
                f"({name} {beyond} {literal} OR ({name} = {literal} AND {condition}))"
                if condition
                else f"{name} {last} {literal}"
            )
        return condition


def _key_column(table: TableSchema, column: Column) -> _KeyColumn:
    name = quoted(column.name)
    kind = column.data_type
    if kind in _NUMBERS:
        return _KeyColumn(column.name, f"CAST({name} AS CHAR)", _literal(_NUMBER))
    if kind in _FLOATS:  # as a double, whose text has all of its digits
        return _KeyColumn(column.name, f"CAST({name} + 0e0 AS CHAR)", _double)
    if kind in _BY_NUMBER:
        return _KeyColumn(column.name, f"CAST({name} + 0 AS CHAR)", _literal(_ORDINAL))
    if kind in _BYTES:
        return _KeyColumn(column.name, f"HEX({name})", _literal(_HEX, "_binary X'{}'"))
    if column.collation is not None:
        charset, collation = column.collation.partition("_")[0], column.collation
        return _KeyColumn(column.name, f"HEX({name})", _literal(_HEX, f"_{charset} X'{{}}' COLLATE {collation}"))
    if kind in ("date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"):
        return _KeyColumn(column.name, f"CAST({name} AS CHAR)", _literal(_TIME_OR_ADDRESS, "'{}'"))
    raise SchemaError(
        f"{table.database}.{table.table} has column {column.name!r}, a {kind}, in its primary key: its rows cannot be "
        "read in ranges of it. Leave the table out of the snapshot."
    )


def _literal(form: re.Pattern[str], sql: str = "{}") -> Callable[[str], str]:
    """What makes ``sql`` of a text of that ``form``, which is how servers write the values of a type.

    Raises SchemaError for another text: boundaries come back out of the commit log and from one task to the next, where
    others may have written them, and would be SQL.
    """

    def literal(text: str) -> str:
        if not form.fullmatch(text):
            raise SchemaError(
                "expected a value of a primary key, as a server writes it, where a chunk ends, and found another text: "
                "somebody else has written to the commit log. Nothing was read by it. See to who may write to that "
                "topic, and start a new snapshot."
            )
        return sql.format(text)

    return literal


def _double(text: str) -> str:
    number = _literal(_DOUBLE)(text)
    return number if "e" in number else f"{number}e0"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
