"""The options of format `debezium`, with the names, values and defaults of Debezium's MySQL connector.

Source: https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-connector-properties
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from changefeed.formats.format import RowRules, TableKey
from changefeed.formats.options import Option, Options, choice, flag, text
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.user_pattern import UserPattern, check_number

_SKIPPABLE = ("c", "u", "d", "t", "r")


def _operations(name: str) -> Option[frozenset[str]]:
    """The option called ``name``: operations separated by commas, or `none`."""

    def read(given: object) -> frozenset[str]:
        words = frozenset(word.strip() for word in given.split(",")) if isinstance(given, str) else frozenset()
        if not words or not (words == {"none"} or words <= set(_SKIPPABLE)):
            raise ValueError(f"none, or some of {', '.join(_SKIPPABLE)} with commas between them")
        return words - {"none"}

    return Option(name, frozenset({"t"}), read)


def _table_keys(name: str) -> Option[tuple[TableKey, ...]]:
    """The option called ``name``: `TABLES:COLUMN,COLUMN;…`, where TABLES is a regular expression for DATABASE.TABLE."""

    def read(given: object) -> tuple[TableKey, ...]:
        items = given.split(";") if isinstance(given, str) else []
        check_number(items, len(items))
        keys = tuple(map(_table_key, filter(str.strip, items)))
        if not keys:
            raise ValueError("the key's columns by tables, as in shop.orders:customer,id;(.*).lines:order_id,number")
        return keys

    return Option(name, (), read)


def _table_key(item: str) -> TableKey:
    match = re.fullmatch(r"\s*([^\s:]+):([^:\s]+)\s*", item)
    if match is None:
        raise ValueError(f"TABLES:COLUMN,COLUMN instead of {item.strip()!r}")
    columns = match[2].split(",")
    for number, column in enumerate(columns):
        if re.search(r"[][.*+?(){}|^$\\]", column) or not column:
            raise ValueError(f"names of columns, and {column!r} is none: patterns are known for tables only")
        if column.lower() in map(str.lower, columns[:number]):
            raise ValueError(f"each column once, and {column!r} is in {item.strip()!r} twice")
    tables = UserPattern(match[1], ignore_case=True)
    if problem := tables.problem:
        raise ValueError(f"a regular expression before the colon, and {match[1][:100]!r} is none: {problem}")
    return TableKey(tables, tuple(columns))


SCHEMAS = flag("schemas", default=False)
PREFIX = text("topic.prefix", "")
DECIMALS = choice("decimal.handling.mode", "precise", "double", "string")
TIMES = choice(
    "time.precision.mode", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
)
BIGINTS = choice("bigint.unsigned.handling.mode", "long", "precise")
BINARIES = choice("binary.handling.mode", "bytes", "base64", "base64-url-safe", "hex")
TOMBSTONES = flag("tombstones.on.delete", default=True)
SKIPPED = _operations("skipped.operations")
QUERIES = flag("include.query", default=False)
UNCHANGED = flag("skip.messages.without.change", default=False)
KEYS = _table_keys("message.key.columns")
TRANSACTIONS = flag("provide.transaction.metadata", default=False)
TRANSACTION_TOPIC = text("topic.transaction", "transaction")
_OF_ROWS: Mapping[str, Option[Any]] = {"skip": SKIPPED, "keys": KEYS}
"""The options of Debezium, by the setting of a pipeline that they replace."""
OPTIONS = (
    SCHEMAS,
    PREFIX,
    DECIMALS,
    TIMES,
    BIGINTS,
    BINARIES,
    TOMBSTONES,
    SKIPPED,
    UNCHANGED,
    KEYS,
    QUERIES,
    TRANSACTIONS,
    TRANSACTION_TOPIC,
)


_PRECISIONS = {
    "adaptive_time_microseconds": (Encoding.EPOCH, Encoding.MICROS, Encoding.EPOCH),
    "connect": (Encoding.EPOCH, Encoding.OF_DAY, Encoding.MILLIS),
    "isostring": (Encoding.OFFSET, Encoding.OFFSET, Encoding.OFFSET),
    "microseconds": (Encoding.EPOCH, Encoding.MICROS, Encoding.MICROS),
    "nanoseconds": (Encoding.EPOCH, Encoding.NANOS, Encoding.NANOS),
}
"""The encodings of DATE, TIME and DATETIME, by `time.precision.mode`."""
_BINARIES = {"base64-url-safe": Encoding.BASE64_URL, "hex": Encoding.HEX}
DEFAULT_RULES = RowRules(SKIPPED.default, keyless="unique")
"""The row rules if no option is set."""


def row_rules(options: Options) -> RowRules:
    """The row rules that ``options`` set."""
    given = {setting: option.name for setting, option in _OF_ROWS.items() if options.has(option)}
    return replace(
        DEFAULT_RULES,
        skipped=options[SKIPPED],
        unchanged_skipped=options[UNCHANGED],
        keys=options[KEYS],
        in_place_of=given,
    )


def connector_style(options: Options, chosen: Mapping[Kind, Encoding]) -> Style:
    """The style that ``options`` set. The encodings in ``chosen`` take precedence."""
    date, time, datetime = _PRECISIONS[options[TIMES]]
    return Style(
        {
            Kind.DECIMAL: Encoding(options[DECIMALS]),
            Kind.BIGINT_UNSIGNED: Encoding(options[BIGINTS]),
            Kind.DATE: date,
            Kind.TIME: time,
            Kind.DATETIME: datetime,
            Kind.TIMESTAMP: Encoding.ZONED,
            Kind.BIT: Encoding.CONNECT,
            Kind.BINARY: _BINARIES.get(options[BINARIES], Encoding.BASE64),
            Kind.GEOMETRY: Encoding.CONNECT,
            **chosen,
        }
    )
