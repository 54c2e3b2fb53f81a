"""Templates filled in plain Python: the reference for the kernel, and a part of the reference reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from changefeed.errors import BinlogFormatError
from changefeed.formats.format import RowFormat
from changefeed.formats.notation import JSON, Notation, slot_number, slot_text
from changefeed.formats.template import ABSENT_IMAGE, NO_SNAPSHOT, ChangeKind, Op, Slot, Template
from changefeed.model.coordinates import sequence_number
from changefeed.model.iso_time import utc_text
from changefeed.model.table_schema import Column, TableSchema
from changefeed.records.block import Header, Step

Image = Mapping[str, object]
"""A row image: column name -> a value of a JSON type in the format's Style. Columns that the event does not have are
missing."""

_CHANGES: Mapping[Op, ChangeKind] = {
    "c": ChangeKind.CREATE,
    "u": ChangeKind.UPDATE,
    "d": ChangeKind.DELETE,
    "r": ChangeKind.READ,
}


@dataclass(frozen=True)
class EventHeader:
    """The header of a change's binlog event, without time and server_id. ``end`` is the event's end position."""

    type: int = 0
    size_bytes: int = 0
    end: int = 0
    flags: int = 0


@dataclass(frozen=True)
class TransactionOrder:
    """The position of a change in transaction ``id``, from 1.

    ``total`` counts all published changes of the transaction, ``of_table`` those of the same table.
    """

    id: str
    total: int
    of_table: int

    @property
    def json(self) -> bytes:
        """The JSON of `Slot.TRANSACTION`."""
        return orjson.dumps({"id": self.id, "total_order": self.total, "data_collection_order": self.of_table})

    @property
    def next(self) -> TransactionOrder:
        """The position of the next change, if it is of the same table."""
        return replace(self, total=self.total + 1, of_table=self.of_table + 1)


@dataclass(frozen=True)
class RowChange:
    """One row change with its coordinates. ``before`` or ``after`` is None if the op does not have it."""

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
    event: EventHeader = EventHeader()
    server_uuid: str = ""
    step: Step = Step.CHANGE
    part: int = 0
    """The number of the change among the changes that a function created from one row."""
    thread: int = 0
    """The connection id of the transaction; 0 if not known."""
    transaction: TransactionOrder | None = None
    """The position in the transaction; None if positions are not counted."""
    commit_micros: int = 0
    """Commit time in microseconds since 1970; 0 if not known."""
    statement_row: int = 0
    """The number of the row in the statement, among the rows of captured tables."""

    @property
    def micros(self) -> int:
        """The commit time in microseconds since 1970; if it is not known, the event's time in whole seconds."""
        return self.commit_micros or self.ts_seconds * 1_000_000

    @property
    def subject(self) -> Image | None:
        """The image of the changed row: the before image of a delete, else the after image."""
        return self.before if self.op == "d" else self.after


@dataclass(frozen=True)
class Rendered:
    """A message of a row change.

    ``value`` is None for a tombstone. ``headers`` has the headers except event id and GTID.
    """

    step: Step
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    image: Image = field(default_factory=dict)
    """The image from which the key was written."""


def messages(
    format: RowFormat, table: TableSchema, change: RowChange, spread: Sequence[str] = ()
) -> Iterator[Rendered]:
    """Yield the messages of ``change`` in order. ``spread`` names the columns of the partition key, if the pipeline
    sets them."""
    kind = _CHANGES[change.op]
    if kind is ChangeKind.UPDATE:
        key = table.primary_key if format.key(table) is not None else ()
        if _has_changed([*(table.columns[index].name for index in key), *spread], change):
            kind = ChangeKind.KEY_CHANGE
    order = change.transaction
    for message in format.messages(table)[kind]:
        image = change.before if message.key == "before" else change.after
        op = message.op or "d"
        about = change
        if (op, message.step, order) != (change.op, change.step, change.transaction):
            about = replace(change, op=op, step=message.step, transaction=order)
        if message.op is not None and order is not None:
            order = order.next
        filled = None if message.op is None else value(format, table, about)
        headers = tuple((name, _fill(format, value, table, about, image, JSON)) for name, value in message.headers)
        yield Rendered(message.step, _key(format, table, change, image), filled, headers, image or {})


def key(format: RowFormat, table: TableSchema, change: RowChange) -> bytes | None:
    """The key of the changed row; None if the table has no key."""
    return _key(format, table, change, change.subject)


def value(format: RowFormat, table: TableSchema, change: RowChange) -> bytes:
    """The message value of ``change``."""
    return _fill(format, format.value(table, change.op), table, change, None)


def key_row(format: RowFormat, table: TableSchema, columns: Sequence[str], image: Image) -> bytes:
    """The ``columns`` of ``image`` as a row of keys, whose hash is the partition."""
    notation = format.notation.of(Slot.KEY)
    positions = {column.name: number for number, column in enumerate(table.columns)}
    written = _columns(notation, table, [positions[name] for name in columns], image)
    return notation.opening + written + notation.closing


def _has_changed(names: Sequence[str], change: RowChange) -> bool:
    before, after = change.before or {}, change.after or {}
    return any(name in after and after[name] != before.get(name) for name in names)


def _key(format: RowFormat, table: TableSchema, change: RowChange, image: Image | None) -> bytes | None:
    template = format.key(table)
    return None if template is None else _fill(format, template, table, change, image)


def _fill(
    format: RowFormat,
    template: Template,
    table: TableSchema,
    change: RowChange,
    key_image: Image | None,
    scalars: Notation | None = None,
) -> bytes:
    """The bytes of ``template``. ``scalars`` is the notation of slots that are no rows, if it is not the format's."""
    everything = range(len(table.columns))
    before, after = change.before or {}, change.after or {}
    has_columns = False

    def row(slot: Slot, indexes: Iterable[int], image: Image) -> bytes:
        nonlocal has_columns
        notation = format.notation.of(slot)
        if notation is JSON and type(image) is dict and [table.columns[index].name for index in indexes] == list(image):
            has_columns = bool(image)
            return orjson.dumps(image)  # the same bytes, in one call
        columns = _columns(notation, table, indexes, image)
        has_columns = bool(columns)
        return notation.opening + columns + notation.closing

    def slot(part: Slot) -> bytes:
        match part:
            case Slot.BEFORE | Slot.AFTER if ABSENT_IMAGE.get(change.op) is part:
                return format.notation.absent(part)
            case Slot.BEFORE:
                return row(part, everything, before)
            case Slot.AFTER:
                return row(part, everything, after)
            case Slot.KEY:
                return row(part, table.primary_key, key_image or {})
            case Slot.KEY_BEFORE:
                return row(part, table.primary_key, before)
            case Slot.KEY_AFTER:
                return row(part, table.primary_key, after)
            case Slot.CHANGED:
                changed = {name: value for name, value in before.items() if name in after and after[name] != value}
                is_there = change.op == "u" and changed
                return row(part, everything, changed) if is_there else format.notation.absent(part)
            case Slot.SEPARATOR:
                return format.notation.separator if has_columns else b""
        written = _scalar(part, change, scalars or format.notation)
        return format.notation.absent(part) if written is None else written

    return b"".join(slot(part) if isinstance(part, Slot) else part for part in template)


def _columns(notation: Notation, table: TableSchema, indexes: Iterable[int], image: Image) -> bytes:
    written = []
    for column in (table.columns[index] for index in indexes):
        text = notation.column(column)
        if column.name not in image:
            written.append(_require_allowed(text.missing, column, "is missing in a row image"))
        elif image[column.name] is None:
            written.append(_require_allowed(text.null, column, "is NULL"))
        elif notation.binary is not None:
            written.append(text.value + notation.binary.value(column, image[column.name]) + text.after)
        else:
            written.append(text.value + orjson.dumps(image[column.name]) + text.after)
    return notation.separator.join(filter(None, written))


def _require_allowed(text: bytes | None, column: Column, what: str) -> bytes:
    if text is None:
        raise BinlogFormatError(f"column {column.name!r} {what}, and the pipeline's format cannot say so")
    return text


def _scalar(slot: Slot, change: RowChange, notation: Notation) -> bytes | None:
    """The bytes of a slot that is no row; None if the slot has no value."""
    match slot:
        case Slot.FILE:
            return slot_text(notation, slot, change.file)
        case Slot.GTID:
            return slot_text(notation, slot, change.gtid) if change.gtid else None
        case Slot.GTID_TEXT:
            return change.gtid.encode()
        case Slot.COMMIT_INFO | Slot.COMMIT_INFO_OFFSET | Slot.PARTITION_INFO:
            return b""  # not known for single rows
        case Slot.EVENT_ID:
            part = f".{change.part}" if change.part else ""
            step = f"/{change.step:d}" if change.step else ""
            return f"{change.server_uuid}/{change.file}:{change.position}/{change.row}{part}{step}".encode()
        case Slot.TIME:
            return utc_text(change.ts_seconds).encode()
        case Slot.QUERY:
            return slot_text(notation, slot, change.query) if change.query is not None else None
        case Slot.XID_TEXT:
            return (change.xid or "").encode()
        case Slot.XID:
            return slot_text(notation, slot, change.xid) if change.xid is not None else None
        case Slot.THREAD:
            return b"%d" % change.thread if change.thread else None
        case Slot.TRANSACTION:
            return change.transaction.json if change.transaction is not None else None
        case Slot.SNAPSHOT:
            return slot_text(notation, slot, change.snapshot)
    return slot_number(notation, slot, _NUMBERS[slot](change))


_NUMBERS: Mapping[Slot, Callable[[RowChange], int]] = {
    Slot.POSITION: lambda change: change.position,
    Slot.ROW: lambda change: change.row,
    Slot.STATEMENT_ROW: lambda change: change.statement_row,
    Slot.EVENT_FIRST_ROW: lambda _change: 0,
    Slot.SEQUENCE: lambda change: sequence_number(change.file, change.position, change.row),
    Slot.EVENT_TYPE: lambda change: change.event.type,
    Slot.EVENT_SIZE: lambda change: change.event.size_bytes,
    Slot.EVENT_END: lambda change: change.event.end,
    Slot.EVENT_FLAGS: lambda change: change.event.flags,
    Slot.SERVER_ID: lambda change: change.server_id,
    Slot.TS_SECONDS: lambda change: change.ts_seconds,
    Slot.TS_MILLIS: lambda change: change.micros // 1000,
    Slot.TS_MICROS: lambda change: change.micros,
    Slot.TS_NANOS: lambda change: change.micros * 1000,
}
