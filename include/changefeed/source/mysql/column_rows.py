"""Converts rows of `information_schema.columns` and `.statistics` into columns and indexes.

Sources: https://dev.mysql.com/doc/refman/9.7/en/information-schema-columns-table.html,
https://mariadb.com/kb/en/information-schema-columns-table/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from changefeed.ddl.column_default import expression_default
from changefeed.errors import SourceError
from changefeed.model.column_types import DATA_TYPES, Measure
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import NO_DEFAULT, Column, Default, Index, current_time, ordered_indexes
from changefeed.source.mysql.session import Row, Session

_FIELDS = "column_name, data_type, column_type, collation_name, is_nullable, column_default, extra, column_comment"
_TYPE = re.compile(r"(?P<name>[a-z0-9_]+)(?:\((?P<first>\d+)(?:,(?P<second>\d+))?\))?")


def column_fields(session: Session) -> str:
    """The fields of `information_schema.columns` that `column_of` reads, for a SELECT on that server."""
    if session.is_mariadb:
        return f"{_FIELDS}, NULL, generation_expression"
    return f"{_FIELDS}, {'srs_id' if session.version_number >= (8, 0) else 'NULL'}, NULL"


FIELD_COUNT = 10
"""The number of fields in `column_fields`."""

INDEX_FIELDS = "index_name, column_name, non_unique, sub_part"
"""The fields of `information_schema.statistics` that `keys_of` reads, in the order of index_name, seq_in_index."""

Keys = tuple[tuple[int, ...], tuple[Index, ...] | None]
"""A primary key's positions, and the other indexes; None if they are not known."""


def column_of(row: Row, *, is_mariadb: bool) -> Column:
    """The column of a row of `column_fields`; raises SourceError for a row that has no name or no type."""
    name, data_type, column_type, collation, nullable, default, extra, comment = (
        None if value is None else str(value) for value in row[:8]
    )
    if name is None or data_type is None or column_type is None:
        raise SourceError(f"information_schema.columns has no name or type in {row!r}")
    data_type, spelled, extra = data_type.lower(), column_type.lower(), (extra or "").upper()
    generated = "VIRTUAL GENERATED" in extra or "STORED GENERATED" in extra
    zerofill = " zerofill" in spelled
    listed = _mariadb_default(default, data_type) if is_mariadb else _mysql_default(default, data_type, extra)
    return Column(
        name,
        data_type,
        " unsigned" in spelled,
        collation,
        _labels(column_type) if data_type in DATA_TYPES and DATA_TYPES[data_type].has_labels else (),
        int(row[8]) if row[8] is not None else None,
        **_measures(data_type, spelled, zerofill),
        nullable=nullable == "YES",
        zerofill=zerofill,
        auto_increment="AUTO_INCREMENT" in extra,
        generated=generated,
        virtual="VIRTUAL GENERATED" in extra,
        default=NO_DEFAULT if generated else listed,
        comment=comment or "",
        row_end=is_mariadb and row[9] == "ROW END",
        hidden=False,
    )


def keys_of(
    session: Session, database: str, table: str, rows: Iterable[Sequence[Any]], columns: Sequence[Column]
) -> Keys:
    """The keys of a table, from its rows of INDEX_FIELDS.

    `information_schema` does not show the order of several unique keys, so SHOW INDEX is queried. If this query fails
    because the table was changed or dropped in the meantime, the indexes are unknown.
    """
    positions = {column.name: position for position, column in enumerate(columns)}
    parts: dict[str, list[int | None]] = {}
    lengths: dict[str, list[int | None]] = {}
    unique: set[str] = set()
    for name, column, non_unique, length in rows:
        parts.setdefault(str(name), []).append(None if column is None else positions.get(str(column)))
        lengths.setdefault(str(name), []).append(None if length is None else int(length))
        if not int(non_unique):
            unique.add(str(name))
    primary = tuple(position for position in parts.pop("PRIMARY", []) if position is not None)
    names = _in_server_order(session, database, table, list(parts)) if len(unique - {"PRIMARY"}) > 1 else list(parts)
    if names is None:
        return primary, None
    indexes = (
        Index(
            name,
            tuple(parts[name]),
            name in unique,
            lengths=tuple(lengths[name]) if name in unique and any(lengths[name]) else (),
        )
        for name in names
    )
    return primary, ordered_indexes((index, columns) for index in indexes)


def _in_server_order(session: Session, database: str, table: str, names: Sequence[str]) -> list[str] | None:
    try:
        shown = session.rows(f"SHOW INDEX FROM {quote_name(database)}.{quote_name(table)}")
    except SourceError:
        return None
    order = [name for name in dict.fromkeys(str(row[_KEY_NAME]) for row in shown) if name != "PRIMARY"]
    return order if set(order) == set(names) else None


_KEY_NAME = 2
"""The index of the field with the index's name in rows of SHOW INDEX."""


# --- values of column_type


def _measures(data_type: str, spelled: str, zerofill: bool) -> dict[str, int | None]:
    """Length, precision, scale and datetime_precision of a type such as `decimal(10,2)` or `datetime(3)`."""
    match = _TYPE.match(spelled)
    first = int(match["first"]) if match and match["first"] else None
    second = int(match["second"]) if match and match["second"] else None
    known = DATA_TYPES.get(data_type)
    match known.measure if known is not None else Measure.NONE:
        case Measure.PRECISION | Measure.OPTIONAL_PRECISION:
            return {"precision": first, "scale": second}
        case Measure.FRACTION:
            return {"datetime_precision": first or 0}
        case Measure.LENGTH:
            return {"length": first}
        case Measure.WIDTH if zerofill or spelled == "tinyint(1)":
            # MariaDB, and MySQL before 8.0.19, list a display width for every integer; it is ignored.
            return {"length": first}
    return {}


_LABEL = re.compile(r"'((?:[^'\\]++|''|\\.?)*+)(?:'|\Z)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "Z": "\x1a"}


def _labels(column_type: str) -> tuple[str, ...]:
    """The labels of a type such as ``enum('a','it''s')``, which has doubled quotes and string escapes."""
    return tuple(_unquote(literal) for literal in _LABEL.findall(column_type))


def _unquote(literal: str) -> str:
    """The value of a string literal without its quotes."""
    return re.sub(
        r"''|\\(.)", lambda match: _ESCAPES.get(match[1], match[1]) if match[1] else "'", literal, flags=re.DOTALL
    )


# --- values of column_default

_CURRENT = re.compile(r"current_timestamp(?:\((\d?)\))?", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_STRING = re.compile(r"'((?:[^'\\]++|''|\\.)*+)'", re.DOTALL)
_BITS = re.compile(r"b'[01]+'")
_BYTES = re.compile(r"X'([0-9A-F]*)'", re.IGNORECASE)


def _mysql_default(text: str | None, data_type: str, extra: str) -> Default:
    if text is None:
        return NO_DEFAULT
    if data_type in ("datetime", "timestamp") and (current := _CURRENT.fullmatch(text)):
        return current_time(int(current[1] or 0))
    return expression_default(_once_encoded(text)) if "DEFAULT_GENERATED" in extra else Default(text)


def _once_encoded(text: str) -> str:
    """The text of an expression that MySQL lists with a character for each byte of its UTF-8."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def _mariadb_default(text: str | None, data_type: str) -> Default:
    """The default that MariaDB lists as SQL: a string in quotes, and NULL as a word."""
    if text is None or text == "NULL":
        return NO_DEFAULT
    if current := _CURRENT.fullmatch(text):
        return current_time(int(current[1] or 0))
    if digits := _BYTES.fullmatch(text):
        return Default("0x" + digits[1].upper())
    string = _STRING.fullmatch(text)
    if string is None and not (_NUMBER.fullmatch(text) or _BITS.fullmatch(text)):
        return expression_default(text)
    value = _unquote(string[1]) if string is not None else text
    return Default("0x" + value.encode().hex().upper() if value and data_type in _OF_BYTES else value)


_OF_BYTES = frozenset(data_type.binary for data_type in DATA_TYPES.values() if data_type.binary)
