"""Rows as the kernel leaves them for functions: before and after as JSON objects, and what is known of the event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from changefeed.block import Message
from changefeed.formats.format import RowFormat
from changefeed.formats.notation import JSON, Notation
from changefeed.formats.render import EventHeader, RowChange
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.table_schema import TableSchema

SEPARATOR = b"\x1e"
"""ASCII's record separator: JSON text never holds it unescaped."""

_FIELDS = (Slot.FILE, Slot.POSITION, Slot.ROW, Slot.SERVER_ID, Slot.TS_SECONDS, Slot.TS_MICROS, Slot.THREAD)
_EVENT_FIELDS = (Slot.EVENT_TYPE, Slot.EVENT_SIZE, Slot.EVENT_END, Slot.EVENT_FLAGS, Slot.XID)
"""Those that few formats have."""
_OF_EVENT = frozenset({*_EVENT_FIELDS, Slot.XID_TEXT})
"""The slots that are made of them."""
_IMAGES = (Slot.BEFORE, Slot.AFTER)
KNOWN = frozenset(
    {
        *(*_FIELDS, *_OF_EVENT, *_IMAGES),
        *(Slot.KEY, Slot.KEY_BEFORE, Slot.KEY_AFTER, Slot.CHANGED, Slot.SEPARATOR),  # of the images
        Slot.SEQUENCE,  # of the coordinates
        *(Slot.TS_MILLIS, Slot.TS_NANOS, Slot.TIME),  # of the microseconds and seconds
        *(Slot.GTID, Slot.GTID_TEXT, Slot.EVENT_ID),  # of the message
        *(Slot.QUERY, Slot.SNAPSHOT),  # the same for all rows: there is none
        *(Slot.COMMIT_INFO, Slot.COMMIT_INFO_OFFSET),  # left out
    }
)
"""The slots that a `RowChange` out of such a row fills. A statement's text has the values that functions may hide."""


@dataclass(frozen=True)
class PlainRows:
    """The format that the kernel writes rows in whose messages are made elsewhere, in ``format``.

    Values are in that format's style, so those that no function touches are the same in its messages.
    """

    format: RowFormat
    notation: Notation = JSON

    @property
    def style(self) -> Style:
        """That of ``format``."""
        return self.format.style

    @property
    def needs_definitions(self) -> bool:
        """As of ``format``, to which the table's schema goes on."""
        return self.format.needs_definitions

    def key(self, table: TableSchema) -> Template | None:  # noqa: ARG002 - the protocol's signature
        """None: the key is made of what functions return."""
        return None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the protocol's signature
        """One for each change, of which a change of key is an update."""
        return ONE_MESSAGE_EACH

    def value(self, table: TableSchema, op: Op) -> Template:
        """The fields that `read` takes apart."""
        parts: list[bytes | Slot] = [op.encode()]
        fields = (*_FIELDS, *_EVENT_FIELDS) if self.has_event(table) else _FIELDS
        for slot in (*fields, *_IMAGES):
            parts += (SEPARATOR, slot)
        return tuple(parts)

    def has_event(self, table: TableSchema) -> bool:
        """Whether messages of ``table`` say what only the event's header, or an XA transaction, has.

        Raises ValueError for a format with a slot that rows of functions cannot fill.
        """
        slots = {slot for slot in self._slots(table) if isinstance(slot, Slot)}
        if unknown := slots - KNOWN:
            raise ValueError(f"rows of functions have no {', '.join(sorted(unknown))}, which their format wants")
        return not slots.isdisjoint(_OF_EVENT)

    def _slots(self, table: TableSchema) -> Iterator[bytes | Slot]:
        yield from self.format.key(table) or ()
        for made in self.format.messages(table).values():
            for message in made:
                yield from self.format.value(table, message.op) if message.op else ()
                for _, template in message.headers:
                    yield from template


def row_change(message: Message) -> RowChange:
    """The row change that the kernel left in ``message``."""
    op, file, position, row, server_id, seconds, micros, thread, *rest, before, after = (message.value or b"").split(
        SEPARATOR
    )
    header, xid = EventHeader(), None
    if rest:
        kind, size, end, flags, last = rest
        header, xid = EventHeader(int(kind), int(size), int(end), int(flags)), orjson.loads(last)
    return RowChange(
        op.decode(),  # type: ignore[arg-type]
        orjson.loads(before) if op in b"ud" else None,
        orjson.loads(after) if op != b"d" else None,
        file.decode(),
        int(position),
        int(row),
        message.gtid.decode(),
        int(server_id),
        int(seconds),
        xid=xid,
        event=header,
        thread=int(thread) if thread != b"null" else 0,
        commit_micros=int(micros),
        server_uuid=message.event_id.partition(b"/")[0].decode(),
    )
