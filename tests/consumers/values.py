"""Values as databases, Flink, Spark and Avro give them, made comparable by the type of the source's column."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

Table = list[dict[str, Any]]
"""Rows, in the order of their keys' text."""


def tabulated(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """``rows`` with the values of ``columns``, by name their types in the source."""
    table = [{name: comparable(type_, row[name]) for name, type_ in columns.items()} for row in rows]
    return sorted(table, key=lambda row: [repr(value) for value in row.values()])


def comparable(type_: str, value: Any) -> Any:
    """``value`` of a column of ``type_``: equal values of the type are equal, however a client gives them."""
    if value is None:
        return None
    word = type_.split("(")[0].split(" ")[0]
    if word.endswith("int") or word == "year":
        return int(value.split("-")[0] if word == "year" and isinstance(value, str) else value)
    if word == "decimal":
        return Decimal(str(value))
    if word == "float":
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if word == "double":
        return float(value)
    if word == "bit":
        return _bits(value, 1 if type_ == "bit(1)" else 0)
    if word == "date":
        return value if isinstance(value, date) else date.fromisoformat(value)
    if word == "time":
        return _time(value)
    if word in ("datetime", "timestamp"):
        return _moment(value)
    if word.endswith(("binary", "blob")):
        return _bytes(value)
    if word == "json":
        return json.loads(value) if isinstance(value, str) else value
    if word == "set" and value.startswith("["):
        return ",".join(json.loads(value))
    return value


def _bits(value: Any, digits: int) -> int:
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    if isinstance(value, str):
        return int(value in ("t", "true")) if digits and value.isalpha() else int(value, 2)
    return int(value)


def _bytes(value: Any) -> bytes:
    return bytes.fromhex(value.removeprefix("\\x")) if isinstance(value, str) else bytes(value)


def _time(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        value = time.fromisoformat(value)
    return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)


def _moment(value: Any) -> datetime:
    """Without a zone: all of them are in UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    result: datetime = value.replace(tzinfo=None)
    return result
