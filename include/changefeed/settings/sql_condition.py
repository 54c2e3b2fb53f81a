"""Parses a condition in SQL into a `RowPredicate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, reduce
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from changefeed.model.row_predicate import (
    Both,
    ColumnOf,
    Comparison,
    Constant,
    Either,
    Image,
    IsNull,
    Like,
    Not,
    Operator,
    RowPredicate,
)

_MAX_DEPTH = 100
_OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED: dict[Operator, Operator] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EXPECTED = (
    "expected columns (`status`, `before.status`, `after.status`) compared with constants by =, <>, <, <=, >, >=, IN "
    "or BETWEEN, LIKE, IS NULL, and AND, OR, NOT"
)


@lru_cache(maxsize=256)
def parse_predicate(sql: str) -> RowPredicate:
    """The predicate of ``sql``; raises ValueError with the reason if it is not supported."""
    try:
        parsed = sqlglot.parse(sql, dialect="mysql")
    except (SqlglotError, RecursionError) as error:
        raise ValueError(f"{sql!r} is no condition: {str(error).splitlines()[0]}") from None
    if len(parsed) != 1 or parsed[0] is None:
        raise ValueError(f"expected one condition, found {len(parsed)} in {sql!r}")
    return _predicate(parsed[0], 0)


@dataclass(frozen=True)
class ServerCondition:
    """A condition of a SELECT, and the names of its columns."""

    sql: str
    columns: tuple[str, ...]


def parse_server_condition(sql: str) -> ServerCondition:
    """The condition that a server evaluates.

    The SQL is generated from the parsed condition, so that no other text reaches the server. Raises ValueError for
    conditions that `parse_predicate` refuses, and for a column of an image (`before.x`).
    """
    parse_predicate(sql)
    (parsed,) = cast("list[exp.Expr]", sqlglot.parse(sql, dialect="mysql"))
    columns = list(parsed.find_all(exp.Column))
    for column in columns:
        if column.table:
            raise ValueError(
                f"{_quote_sql(column)} is a column of an image, and existing rows have only one: expected the column's "
                "name"
            )
        column.this.set("quoted", True)
    return ServerCondition(parsed.sql(dialect="mysql", comments=False), tuple(column.name for column in columns))


def _predicate(node: exp.Expr, depth: int) -> RowPredicate:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the condition is nested deeper than {_MAX_DEPTH} levels")
    match node:
        case exp.Paren():
            return _predicate(node.this, depth + 1)
        case exp.Not():
            return Not(_predicate(node.this, depth + 1))
        case exp.And():
            return Both(_predicate(node.left, depth + 1), _predicate(node.right, depth + 1))
        case exp.Or():
            return Either(_predicate(node.left, depth + 1), _predicate(node.right, depth + 1))
        case exp.Is(this=exp.Column(), expression=exp.Null()):
            return IsNull(_column(node.this))
        case exp.Between():
            low = Comparison(_column(node.this), ">=", _constant(node.args["low"]))
            return Both(low, Comparison(_column(node.this), "<=", _constant(node.args["high"])))
        case exp.In() if node.expressions:
            column = _column(node.this)
            return _join_by_or([Comparison(column, "=", _constant(each)) for each in node.expressions])
        case exp.Like() | exp.Escape(this=exp.Like()):
            return _like(node)
        case exp.Column():
            return Comparison(_column(node), "<>", 0)  # a number as a condition, as in SQL
        case exp.Binary() if type(node) in _OPERATORS:
            operator = _OPERATORS[type(node)]
            if isinstance(node.right, exp.Column) and not isinstance(node.left, exp.Column):
                return Comparison(_column(node.right), _MIRRORED[operator], _constant(node.left))
            return Comparison(_column(node.left), operator, _constant(node.right))
    raise ValueError(f"{_quote_sql(node)} cannot be evaluated: {_EXPECTED}")


def _like(node: exp.Like | exp.Escape) -> RowPredicate:
    like = node.this if isinstance(node, exp.Escape) else node
    pattern, escape = like.expression, node.expression if isinstance(node, exp.Escape) else None
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise ValueError(f"{_quote_sql(pattern)} is no pattern: expected a text in quotes, as in `name LIKE 'a%'`")
    if escape is not None and not (isinstance(escape, exp.Literal) and len(str(escape.this)) == 1):
        raise ValueError(f"{_quote_sql(escape)} is no escape character: expected one character in quotes")
    character = "\\" if escape is None else str(escape.this)
    text = str(pattern.this)
    if (len(text) - len(text.rstrip(character))) % 2:
        raise ValueError(
            f"{_quote_sql(pattern)} ends with the escape character {character!r}: expected a character after it"
        )
    found = Like(_column(like.this), text, character)
    return Not(found) if like.args.get("negate") else found


def _join_by_or(comparisons: Sequence[Comparison]) -> RowPredicate:
    """Join ``comparisons`` by OR, in a balanced tree."""
    parts: list[RowPredicate] = [*comparisons]
    while len(parts) > 1:
        parts = [reduce(Either, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return parts[0]


def _column(node: exp.Expr) -> ColumnOf:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        raise ValueError(f"{_quote_sql(node)} is no column: {_EXPECTED}")
    if node.args.get("db") or node.table.lower() not in ("", "before", "after"):
        raise ValueError(
            f"{_quote_sql(node)} is not a column of an image: expected `before.{node.name}`, `after.{node.name}` or "
            "the name"
        )
    return ColumnOf(cast(Image, node.table.lower() or "row"), node.name)


def _constant(node: exp.Expr) -> Constant:
    match node:
        case exp.Paren():
            return _constant(node.this)
        case exp.Neg(this=exp.Literal(is_string=False)):
            value = _constant(node.this)
            if isinstance(value, int | Decimal):
                return -value
        case exp.Literal(is_string=True):
            return str(node.this)
        case exp.Literal():
            number = Decimal(str(node.this))
            return int(number) if number == number.to_integral_value() and abs(number) < 10**30 else number
        case exp.Boolean():
            return int(node.this)
        case exp.HexString():
            digits = str(node.this).removeprefix("0x")
            return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
        case exp.Null():
            raise ValueError("no value is equal to NULL: expected IS NULL or IS NOT NULL")
    raise ValueError(f"{_quote_sql(node)} is no constant: {_EXPECTED}")


def _quote_sql(node: exp.Expr) -> str:
    return repr(node.sql(dialect="mysql")[:100])
