"""Fills a format's templates in plain Python: what the reference reader uses, and what the kernel is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from changefeed.formats.format import RowFormat
from changefeed.formats.template import NO_SNAPSHOT, Op, Slot, Template
from changefeed.table_schema import TableSchema

Image = Mapping[str, object]
"""A row image: column name -> a value that JSON knows, as the format's ValueStyle writes it."""


@dataclass(frozen=True)
class RowChange:
    """One row change with its coordinates; ``before`` or ``after`` is None where the op has none."""

    op: Op
    before: Image | None
    after: Image | None
    file: str
    position: int
    row: int
    gtid: str
    server_id: int
    ts_seconds: int
    query: str | None = None
    xid: str | None = None
    snapshot: str = NO_SNAPSHOT

    def key_of(self, table: TableSchema) -> dict[str, object]:
        """The primary key's columns of the image that the op is about; {} for a table without one."""
        image = self.after if self.op != "d" else self.before
        names = (table.columns[place].name for place in table.primary_key)
        return {name: image[name] for name in names if image is not None and name in image}


def key(format: RowFormat, table: TableSchema, change: RowChange) -> bytes | None:
    """The message key of ``change``, None where the table has none."""
    template = format.key(table)
    return None if template is None else _filled(template, table, change)


def value(format: RowFormat, table: TableSchema, change: RowChange) -> bytes:
    """The message value of ``change``."""
    return _filled(format.value(table, change.op), table, change)


def _filled(template: Template, table: TableSchema, change: RowChange) -> bytes:
    return b"".join(_slot(part, table, change) if isinstance(part, Slot) else part.encode() for part in template)


def _slot(slot: Slot, table: TableSchema, change: RowChange) -> bytes:
    match slot:
        case Slot.BEFORE:
            return orjson.dumps(change.before)
        case Slot.AFTER:
            return orjson.dumps(change.after)
        case Slot.KEY:
            return orjson.dumps(change.key_of(table))
        case Slot.FILE:
            return change.file.encode()
        case Slot.POSITION:
            return b"%d" % change.position
        case Slot.ROW:
            return b"%d" % change.row
        case Slot.GTID:
            return orjson.dumps(change.gtid or None)
        case Slot.SERVER_ID:
            return b"%d" % change.server_id
        case Slot.TS_SECONDS:
            return b"%d" % change.ts_seconds
        case Slot.QUERY:
            return orjson.dumps(change.query)
        case Slot.XID:
            return orjson.dumps(change.xid)
        case Slot.SNAPSHOT:
            return change.snapshot.encode()
