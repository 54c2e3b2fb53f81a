"""A format that shares nothing with JSON, registered here: the kernel and the plain rendering write it alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from integration.binlog_of import SERVER_UUID, binlog_of

from changefeed.formats import registry, render
from changefeed.formats.format import Format, FormatSettings
from changefeed.formats.notation import ColumnText
from changefeed.formats.reader import SchemaText
from changefeed.formats.render import Image, RowChange
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.model.table_schema import Column, TableSchema
from changefeed.records.block import Step
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings
from changefeed.settings.routes import compile_routes
from devstack.mysql import MysqlServer

TABLE = TableSchema(
    "", "t", tuple(Column(name, "") for name in ("id", "at", "seen", "day", "amount")), primary_key=(0,)
)
STYLE = Style({Kind.DATETIME: Encoding.EPOCH, Kind.TIMESTAMP: Encoding.ISO, Kind.DECIMAL: Encoding.DOUBLE})


@dataclass(frozen=True)
class OddNotation:
    """Bytes that are no text, and each kind of absence spelled in its own way."""

    opening: bytes = b"\xfe<"
    separator: bytes = b"\x00\xff"
    closing: bytes = b">"
    binary: None = None

    def column(self, column: Column) -> ColumnText:
        name = column.name.encode()
        return ColumnText(b"\x01" + name + b"\x80", b"\x02" + name, b"\x03" + name, b"!" if name > b"day" else b"")

    def of(self, slot: Slot) -> OddNotation:
        return self if slot is not Slot.CHANGED else OddNotation(opening=b"[", separator=b"|", closing=b"")

    def absent(self, slot: Slot) -> bytes:
        return b"(no " + slot.encode() + b")"

    def text(self, text: str) -> bytes:
        return text.encode("utf-16-le")


@dataclass(frozen=True)
class OddFormat:
    """A change of key is one update with both images under the new key, and nothing has a tombstone."""

    settings: FormatSettings
    style: Style = STYLE
    notation: OddNotation = OddNotation()
    needs_definitions: bool = False

    def key(self, table: TableSchema) -> Template | None:
        return (b"\xc0", Slot.KEY) if table.primary_key else None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        return ONE_MESSAGE_EACH

    def value(self, table: TableSchema, op: Op) -> Template:
        return (
            b"\x00\xc3" + op.encode() + table.table.encode(), Slot.BEFORE, b"\xff", Slot.AFTER, Slot.QUERY, b"\x00",
            Slot.XID, Slot.SNAPSHOT, Slot.POSITION, Slot.CHANGED, Slot.SEPARATOR, Slot.EVENT_ID, b" ", Slot.TIME,
        )  # fmt: skip

    def reader(self, schemas: SchemaText | None = None) -> None:  # noqa: ARG002 - nothing reads it back
        return None

    def schema_change(self, *_: object) -> bytes:
        return b"\xc1"

    def truncate(self, *_: object) -> bytes:
        return b"\xc2"

    def statement(self, *_: object, hide_sql: bool) -> bytes:
        return b"\xc3" if hide_sql else b"\xc4"

    def statement_headers(self, *_: object) -> tuple[()]:
        return ()


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Format:
    """The format as a pipeline gets it that names it."""
    monkeypatch.setitem(registry.OWN, "odd", OddFormat)
    pipeline = Pipeline(
        name="p", source=SourceSettings(connection="m"), kafka=KafkaSettings(connection="k"), format="odd"
    )
    return compile_routes(pipeline).format(1)


def test_the_kernel_and_the_plain_rendering_write_a_format_that_is_no_text_alike(
    full_mysql_server: MysqlServer, unique_name: str, odd: Format
) -> None:
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "SET sql_mode = '', time_zone = '+00:00', binlog_row_image = FULL",
        "CREATE TABLE t (id INT PRIMARY KEY, at DATETIME(3), seen TIMESTAMP(3) NULL, day DATE, amount DECIMAL(6,2))",
        "INSERT INTO t VALUES (7, '2026-01-31 12:00:00.250', '2026-01-31 12:00:00.250', '2026-01-31', 1.25)",
        "UPDATE t SET id = 8, at = '0000-00-00', seen = NULL",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE t SET amount = -2.25",
        "DELETE FROM t",
    )
    messages = binlog.messages(odd)
    first: Image = {
        "id": 7, "at": 1769860800250, "seen": "2026-01-31T12:00:00.250Z", "day": "2026-01-31", "amount": 1.25,
    }  # fmt: skip
    moved: dict[str, Any] = {**first, "id": 8, "at": None, "seen": None}
    changes: list[tuple[Op, Image | None, Image | None]] = [
        ("c", None, first),
        ("u", first, moved),
        ("u", {"id": 8}, {"id": 8, "amount": -2.25}),
        ("d", {"id": 8}, None),
    ]
    assert len(messages) == len(changes)
    for message, (op, before, after) in zip(messages, changes, strict=True):
        change = RowChange(
            op, before, after, binlog.name, message.position, 0, "", 1, message.seconds, server_uuid=SERVER_UUID
        )
        (rendered,) = render.messages(odd, TABLE, change)
        assert (message.key, message.value) == (rendered.key, rendered.value)
        assert message.sequence == rendered.step == Step.CHANGE
    assert messages[1].key == b"\xc0\xfe<\x01id\x808!>", "of the after image"
    assert messages[1].value is not None
    assert messages[1].value.startswith(
        b"\x00\xc3ut"
        b"\xfe<\x01id\x807!\x00\xff\x01at\x801769860800250\x00\xff"
        b'\x01seen\x80"2026-01-31T12:00:00.250Z"!\x00\xff\x01day\x80"2026-01-31"\x00\xff\x01amount\x801.25>'
        b"\xff"
        b'\xfe<\x01id\x808!\x00\xff\x02at\x00\xff\x02seen\x00\xff\x01day\x80"2026-01-31"\x00\xff\x01amount\x801.25>'
        b"(no query)\x00(no xid)false%d"
        b'[\x01id\x807!|\x01at\x801769860800250|\x01seen\x80"2026-01-31T12:00:00.250Z"!|\x03day|\x03amount\x00\xff%b '
        % (messages[1].position, messages[1].event_id)
    )


def test_a_pipeline_gets_the_format_that_it_names(odd: Format) -> None:
    assert isinstance(odd, OddFormat)
    assert odd.settings.server_name == "p"
