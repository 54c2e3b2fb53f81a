"""What a consumer of one format has of a table's topic, and whether each key's records form a chain.

Independent of changefeed's own readers: json, Confluent's deserialiser and kafka-python alone.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from foreign import values
from integration.shown_tables import set_session

from devstack.sql_server import SqlServer

Image = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """A record of a row: ``op`` is c, u, d, r, or `put` and `gone` of formats that say no more."""

    op: str
    key: str
    partition: int
    before: Image | None = None
    after: Image | None = None
    at: tuple[int, int] | None = None
    old: Image | None = None
    """Of `maxwell`: the columns that an update changed, as they were."""


@dataclass(frozen=True)
class Unknown:
    """A value whose form is not compared here: only that it is not NULL, or, as zero dates are, may be."""

    may_be_null: bool = False

    def __eq__(self, other: object) -> bool:
        return other is not None or self.may_be_null

    __hash__ = object.__hash__


UNKNOWN = Unknown()
FLUVIO_EXACT = (values.INTEGERS | values.TEXTS) - {"year", "enum"}
TEMPORAL = frozenset({"date", "time", "datetime", "timestamp"})
Avro = Callable[[str, str, bytes], Any]
"""Reads a key or value of a topic."""


def changes_of(format: Mapping[str, Any], records: Iterable[Any], avro: Avro | None) -> Iterator[Change | None]:
    """The changes of a table's records, in their order; None for a TRUNCATE, and tombstones as op `tombstone`."""
    for record in records:
        if format["name"] == "avro":
            assert avro is not None
            key = json.dumps(avro(record.topic, "key", record.key), default=str) if record.key else ""
            value = avro(record.topic, "value", record.value) if record.value else None
        else:
            key = (record.key or b"").decode()
            value = json.loads(record.value, parse_float=Decimal) if record.value else None
        yield from _changes(format, key, record.partition, value)


def _changes(format: Mapping[str, Any], key: str, partition: int, value: Any) -> Iterator[Change | None]:
    name = format["name"]
    if name == "cloudevents":
        data = format["data"]
        inner = data if isinstance(data, dict) else {"name": data}
        yield from _changes(inner, key, partition, value and value["data"])
    elif value is None:
        yield Change("tombstone" if name in ("debezium", "avro") else "gone", key, partition)
    elif name == "flat":
        gone = value.pop("__deleted", "false") == "true"
        yield Change("gone" if gone else "put", key, partition, after=value)
    elif name == "maxwell":
        op = {"bootstrap-insert": "put", "insert": "put", "update": "put", "delete": "gone"}[value["type"]]
        yield Change(op, key, partition, after=value["data"], old=value.get("old"))
    elif name == "fluvio":
        ((op, body),) = value["operation"].items()
        if op == "Query":
            return
        (row,) = body["rows"]
        names = value["columns"]
        before, after = (_cells(names, row.get(each)) for each in ("before_cols", "after_cols"))
        if op == "Update":
            yield Change("u", "", partition, before, after)
        else:
            image = _cells(names, row["cols"])
            yield Change("put" if op == "Add" else "gone", "", partition, after=image)
    else:
        value = value["payload"] if format.get("schemas") else value
        if value["op"] == "t":
            yield None
            return
        source = value["source"]
        at = (int(source["file"].rpartition(".")[2]), int(source["pos"]))
        yield Change(value["op"], key, partition, value["before"], value["after"], at)


def _cells(names: list[str], cells: list[Any] | None) -> Image | None:
    if cells is None:
        return None
    return {
        name: None if cell == "Null" else next(iter(cell.values())) for name, cell in zip(names, cells, strict=True)
    }


@dataclass
class Consumed:
    """The rows that a consumer has, by key, and what did not fit on the way."""

    rows: dict[str, Image] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    repeats: bool = False
    """Whether changes come again, after a seek."""
    one_server: bool = True
    """Whether all coordinates are of one binlog."""

    def take(self, changes: Iterable[Change | None], modified: frozenset[str]) -> None:
        """Take the changes of a table; ``modified`` are columns that an ALTER gave other values."""
        known: set[str] = set()
        deleted: set[str] = set()
        partitions: dict[str, int] = {}
        last: dict[str, tuple[int, int]] = {}
        for change in changes:
            if change is None:
                self.rows.clear()
                known.clear()
                continue
            key = change.key
            if partitions.setdefault(key, change.partition) != change.partition:
                self.wrong.append(f"{key} is in two partitions")
            if change.op == "tombstone":
                if (key in self.rows or key not in deleted) and not self.repeats:
                    self.wrong.append(f"a tombstone of {key} without a delete before it")
                continue
            if change.at is not None and not self.repeats:
                if self.one_server and last.get(key, change.at) > change.at:
                    self.wrong.append(f"{change.op} of {key} at {change.at}, after {last[key]}")
                last[key] = change.at
                self._check_chain(change, key in known, modified)
            known.add(key)
            if change.op in ("d", "gone"):
                self.rows.pop(key, None)
                deleted.add(key)
            else:
                assert change.after is not None
                self.rows[key] = change.after

    def _check_chain(self, change: Change, is_known: bool, modified: frozenset[str]) -> None:
        row = self.rows.get(change.key)
        if change.op == "c" and row is not None:
            self.wrong.append(f"a create of {change.key}, which is there")
        if not is_known:
            return
        if change.op in "ud" and row is None:
            self.wrong.append(f"{change.op} of {change.key}, which is not there")
        image = change.after if change.op == "r" else change.before
        if change.op == "r" and row is None:
            self.wrong.append(f"r of {change.key}, which was deleted")
        for name, value in (image or {}).items() if row is not None else ():
            if name in row and name not in modified and row[name] != value:
                self.wrong.append(f"{change.op} of {change.key}: {name} was {row[name]!r}, and is {value!r} before")


def columns_of(server: SqlServer, database: str, table: str) -> tuple[list[Any], list[str]]:
    """A table's columns, with their names and types, and the names of its primary key."""
    where = f"WHERE table_schema = '{database}' AND table_name = '{table}'"
    with server.connect() as connection, connection.cursor() as cursor:
        set_session(cursor)
        cursor.execute(
            f"SELECT column_name, data_type FROM information_schema.columns {where} ORDER BY ordinal_position"
        )
        columns = [SimpleNamespace(name=name, data_type=kind) for name, kind in cursor.fetchall()]
        cursor.execute(
            f"SELECT column_name FROM information_schema.statistics {where} AND index_name = 'PRIMARY' "
            "ORDER BY seq_in_index"
        )
        return columns, [name for (name,) in cursor.fetchall()]


def selected(server: SqlServer, database: str, table: str, columns: list[Any], where: str) -> list[Image]:
    """The table's rows as SELECT has them, each value in the form of `foreign.values`."""
    expressions = ", ".join(map(values.selected, columns))
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        set_session(cursor)
        cursor.execute(f"SELECT {expressions} FROM `{database}`.`{table}` WHERE {where or 'TRUE'}")
        rows = list(cursor.fetchall())
    return [
        {column.name: values.of_select(column, value) for column, value in zip(columns, row, strict=True)}
        for row in rows
    ]


def read_value(format: Mapping[str, Any], column: Any, value: Any) -> Any:
    """A record's value in the form of `foreign.values`; UNKNOWN for those whose form is the format's own."""
    name, kind = format["name"], column.data_type
    if name == "cloudevents":
        data = format["data"]
        return read_value(data if isinstance(data, dict) else {"name": data}, column, value)
    if value is None:
        return Unknown(may_be_null=True) if name == "avro" and kind in TEMPORAL else None
    exact = kind in values.INTEGERS | values.TEXTS | {"json"}
    if name == "fluvio":
        return values.of_record(column, value) if kind in FLUVIO_EXACT else UNKNOWN
    if name == "avro":
        if isinstance(value, bytes) and kind in values.BYTES:
            return value.hex().upper()
        return values.of_record(column, value) if exact or isinstance(value, Decimal) else UNKNOWN
    if kind == "bit":
        if isinstance(value, bool | int):
            return int(value)
        return int.from_bytes(base64.b64decode(value, validate=True), "little")
    if name == "maxwell":
        if kind == "set":
            return ",".join(value)
        if kind == "json":
            return json.dumps(_plain_json(value), sort_keys=True)
        if kind in ("datetime", "timestamp"):
            return values.of_select(column, value)
    return values.of_record(column, _plain_json(value) if isinstance(value, dict | list) else value)


def _plain_json(value: Any) -> Any:
    """Numbers with fractions as floats again."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_plain_json(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain_json(each) for key, each in value.items()}
    return value


def fluvio_rows(changes: Iterable[Change | None], key: list[str]) -> dict[str, Image]:
    """The rows of messages without keys, by the columns of the primary key."""
    rows: dict[str, Image] = {}
    for change in changes:
        assert change is not None
        assert change.after is not None
        if change.before is not None:
            rows.pop(json.dumps([change.before[name] for name in key]), None)
        place = json.dumps([change.after[name] for name in key])
        if change.op == "gone":
            rows.pop(place, None)
        else:
            rows[place] = change.after
    return rows


def keyless_rows(changes: list[Change]) -> Counter[str]:
    """Of a table without a key: the rows that were read last, and all changes at or after their coordinates."""
    begin = max((change.at for change in changes if change.op == "r" and change.at), default=(0, 0))
    found: Counter[str] = Counter()
    for change in changes:
        assert change.at is not None
        if change.at < begin:
            continue
        if change.before is not None:
            found[json.dumps(change.before, sort_keys=True, default=str)] -= 1
        if change.after is not None:
            found[json.dumps(change.after, sort_keys=True, default=str)] += 1
    return found
