"""Each format over all column types: the kernel writes what the plain rendering makes of the same changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import orjson
import pytest
from integration.binlog_of import SERVER_UUID, Binlog, binlog_of
from integration.random_tables import RandomTable, column_makers

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.joined_rows import join_messages
from changefeed.errors import BinlogFormatError
from changefeed.formats import render
from changefeed.formats.format import Format, FormatSettings
from changefeed.formats.headers import HEADERS, WithHeaders
from changefeed.formats.notation import ColumnText, JsonNotation
from changefeed.formats.registry import format_of, known_names
from changefeed.formats.render import EventHeader, Image, RowChange, TransactionOrder
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.table_schema import Column, TableSchema
from changefeed.records.block import Message, MessageBlock
from devstack.mysql import MysqlServer

_COLUMN, _NAME, _PART = b"\x1e", b"\x1f", b"\x1d"
"""Bytes that JSON text does not hold."""

NO_COMMIT_INFO = {"output_commit_info": False}
"""What a transaction's end says is not known where single rows are rendered: see test_maxwell_transactions."""
# Formats in binary have tests of their own: test_avro_values.
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *(
        (name, NO_COMMIT_INFO if name == "maxwell" else {})
        for name in known_names()
        if format_of(name, FormatSettings("", 0)).notation.binary is None
    ),
    ("flat", {"delete.tombstone.handling.mode": "rewrite-with-tombstone", "add.fields": "op,table,source.ts_ms,gtid"}),
    (
        "flat",
        {"delete.tombstone.handling.mode": "drop", "add.headers": ["op", "db", "file:binlog"], "add.fields": ["row"]},
    ),
    ("debezium", {"schemas": True, "topic.prefix": "shop", "binary.handling.mode": "base64", "include.query": True}),
    (
        "debezium",
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "microseconds",
            "bigint.unsigned.handling.mode": "precise",
            "binary.handling.mode": "hex",
            "tombstones.on.delete": False,
            "skipped.operations": "c,t",
        },
    ),
    ("debezium", {"provide.transaction.metadata": True, "time.precision.mode": "isostring"}),
    ("debezium", {"time.precision.mode": "connect", "binary.handling.mode": "base64-url-safe"}),
    ("flat", {"time.precision.mode": "nanoseconds"}),
    ("maxwell", {"kafka_key_format": "array", "output_nulls": False, "output_binlog_position": True, **NO_COMMIT_INFO}),
    ("maxwell", {"output_gtid_position": True, "output_server_id": True, "output_row_query": True, **NO_COMMIT_INFO}),
    ("cloudevents", {"data": {"name": "maxwell", **NO_COMMIT_INFO}, "source": "urn:shop", "type": "com.example"}),
    ("cloudevents", {"data": {"name": "flat", "delete.tombstone.handling.mode": "rewrite", "add.fields": ["op"]}}),
]


@dataclass(frozen=True)
class _RawNotation(JsonNotation):
    opening: bytes = b""
    separator: bytes = b""
    closing: bytes = b""

    def column(self, column: Column) -> ColumnText:
        name = _COLUMN + column.name.encode() + _NAME
        return ColumnText(name, name)


@dataclass(frozen=True)
class _RawFormat:
    """A change's parts, each value as the text that the kernel writes for ``style``."""

    style: Style
    notation: _RawNotation = _RawNotation()
    needs_definitions: bool = False

    def key(self, table: TableSchema) -> Template | None:
        return (Slot.KEY,) if table.primary_key else None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002
        return ONE_MESSAGE_EACH

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002
        parts: tuple[bytes | Slot, ...] = (op.encode(), Slot.BEFORE, Slot.AFTER, Slot.EVENT_TYPE, Slot.EVENT_SIZE)
        parts += (Slot.EVENT_END, Slot.EVENT_FLAGS, Slot.SERVER_ID, Slot.QUERY, Slot.TS_MICROS, Slot.THREAD)
        return tuple(part for pair in zip(parts, [_PART] * len(parts), strict=True) for part in pair)


@cache
def _fragment(text: bytes) -> orjson.Fragment:
    """The same for the same text, so that two can be compared."""
    return orjson.Fragment(text)


def _image(part: bytes) -> Image | None:
    if part == b"null":
        return None
    pairs = (column.split(_NAME) for column in part.split(_COLUMN)[1:])
    return {name.decode(): _fragment(text) if text else None for name, text in pairs}


def _changes(binlog: Binlog, style: Style) -> Iterator[tuple[TableSchema, RowChange]]:
    decoder = KernelDecoder(
        lambda database, table: Route(f"{database}.{table}", 1) if database == binlog.database else None,
        lambda *_: None, _RawFormat(style), SERVER_UUID,
    )  # fmt: skip
    for block in decoder.decode([binlog.data[FIRST_POSITION:]], binlog.slice):
        if not isinstance(block, MessageBlock):
            continue
        table, _ = decoder.programs.bound[block.topic]
        for message in block.messages():
            op, before, after, *event, server_id, query, micros, thread, _ = (message.value or b"").split(_PART)
            yield table.schema, RowChange(
                op.decode(), _image(before), _image(after), binlog.name, message.position,  # type: ignore[arg-type]
                message.sequence >> 2, message.gtid.decode(), int(server_id), message.seconds,
                None if query == b"null" else orjson.loads(query),
                event=EventHeader(*map(int, event)), server_uuid=SERVER_UUID,
                commit_micros=int(micros),
                thread=int(thread) if thread != b"null" else 0,
            )  # fmt: skip


@pytest.fixture(scope="module")
def binlog(full_mysql_server: MysqlServer) -> Binlog:
    """Changes of a table with columns of all types, of one without a key, and of one whose keys change."""
    rng = random.Random("formats")
    all_types = RandomTable("formats_alike", "all types")
    makers = column_makers(mariadb=False)
    all_types.columns += (make(rng, f"{name} {number}") for name, make in makers.items() for number in range(3))
    rows = (f"INSERT INTO {all_types.qualified} VALUES ({n}, {', '.join(all_types.literals(rng))})" for n in range(40))
    pairs = (zip(all_types.columns, all_types.literals(rng), strict=True) for _ in range(10))
    changes = (", ".join(f"`{column.name}` = {literal}" for column, literal in pair[:9]) for pair in map(list, pairs))
    return binlog_of(
        full_mysql_server,
        all_types.database,
        "SET sql_mode = '', time_zone = '+00:00', binlog_rows_query_log_events = ON",
        all_types.create(),
        *rows,
        *(f"UPDATE {all_types.qualified} SET {change} WHERE id = {number}" for number, change in enumerate(changes)),
        f"DELETE FROM {all_types.qualified}",
        "CREATE TABLE keyless (a INT, b SET('x', 'y\"', 'z'), c DATETIME(2))",
        "INSERT INTO keyless VALUES (1, 'x,z', '2026-01-31 01:02:03.45'), (NULL, NULL, NULL), (2, '', '0000-00-00')",
        "UPDATE keyless SET a = 7",
        "DELETE FROM keyless",
        "CREATE TABLE `keys` (Q INT, `ä` VARCHAR(100), n INT, PRIMARY KEY (`ä`, Q))",
        "INSERT INTO `keys` VALUES (1, 'a', 1), (2, 'b', 2)",
        "UPDATE `keys` SET `ä` = CONCAT(`ä`, REPEAT('c', 90)), n = NULL",
    )


@pytest.fixture(scope="module")
def minimal(full_mysql_server: MysqlServer, binlog: Binlog) -> Binlog:
    """Changes of which the binlog has a key and the columns that changed."""
    return binlog_of(
        full_mysql_server,
        binlog.database,
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE `keys` SET n = 8",
        "DELETE FROM `keys`",
    )


def _event_id(change: RowChange, step: int) -> bytes:
    text = f"{SERVER_UUID}/{change.file}:{change.position}/{change.row}"
    return (f"{text}/{step}" if step else text).encode()


@pytest.mark.parametrize(("name", "options"), OPTIONS)
@pytest.mark.parametrize("headers", [(), tuple(HEADERS)], ids=["plain", "headers"])
def test_the_kernel_and_the_plain_rendering_write_alike(
    binlog: Binlog, minimal: Binlog, name: str, options: dict[str, Any], headers: tuple[str, ...]
) -> None:
    format = format_of(name, FormatSettings("shop", 1_700_000_000_000, options=options))
    if headers:
        format = WithHeaders(format, headers)
    messages = _compared(binlog, format)
    assert len(messages) >= 60
    for message in messages:
        for part in (message.key, message.value):
            if part is not None:
                orjson.loads(part)
    if name == "fluvio":
        for refused in (minimal.messages, lambda format: list(_rendered(minimal, format))):
            with pytest.raises(BinlogFormatError):
                refused(format)
    else:
        assert len(_compared(minimal, format)) >= 2


def _compared(binlog: Binlog, format: Format) -> list[Message]:
    """What the kernel makes of ``binlog``, which is what the plain rendering does."""
    messages = binlog.messages(format)
    rendered = sorted(_rendered(binlog, format), key=lambda message: (message.position, message.sequence))
    for message, other in zip(messages, rendered, strict=True):
        assert message == other
    return messages


def _rendered(binlog: Binlog, format: Format) -> list[Message]:
    totals, of_tables = Counter[str](), Counter[tuple[str, str]]()

    def rendered(table: TableSchema, change: RowChange) -> Iterator[render.Rendered]:
        order = TransactionOrder(change.gtid, totals[change.gtid] + 1, of_tables[change.gtid, table.table] + 1)
        for message in render.messages(format, table, replace(change, transaction=order)):
            totals[change.gtid] += message.value is not None
            of_tables[change.gtid, table.table] += message.value is not None
            yield message

    return join_messages(
        Message(
            change.position,
            change.row << 2 | message.step,
            message.key,
            message.value,
            _event_id(change, message.step),
            change.gtid.encode(),
            message.headers,
            change.ts_seconds,
        )
        for table, change in _changes(binlog, format.style)
        for message in rendered(table, change)
    )
