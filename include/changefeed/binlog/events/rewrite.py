"""Rewrites rows events as plain rows events, before the kernel reads them.

There are three kinds:

- PARTIAL_UPDATE_ROWS, whose after images have changes of JSON documents instead of documents;
- MariaDB's compressed rows events;
- rows of MariaDB tables with COMPRESSED columns, whose values are decompressed one by one.

Sources: `Rows_log_event` in `sql/log_event.cc` (value_options), https://mariadb.com/kb/en/storage-engine-independent-column-compression/
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from changefeed.binlog.events import partial_json
from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, DamagedEvent, EventType, Fields
from changefeed.binlog.events.query_event import inflate
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.kernel import layout
from changefeed.model import column_types
from changefeed.model.column_types import WIRE_TYPES
from changefeed.native.memory import Words

COMPRESSED_TYPES = {
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED: EventType.WRITE_ROWS,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: EventType.UPDATE_ROWS,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED: EventType.DELETE_ROWS,
}
TYPES = frozenset({EventType.PARTIAL_UPDATE_ROWS, *COMPRESSED_TYPES})

_VERSION_2 = frozenset({EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS})
_MAX_VALUE = 1 << 30


def is_needed(table_map: TableMap) -> bool:
    """Whether the table has MariaDB COMPRESSED columns."""
    return any(column.wire.is_compressed for column in table_map.columns)


def table_id_of(body: bytes) -> int:
    """The id of a rows event's table."""
    return Fields(body).number(6)


def flags_of(body: bytes) -> int:
    """The flags of a rows event."""
    return int.from_bytes(body[6:8], "little")


def header_of(event: bytes, kind: int, body_size: int) -> bytes:
    """The header of a plain event of type ``kind`` that replaces ``event``."""
    seconds, _, server_id, _, _, flags = HEADER.unpack_from(event)
    return HEADER.pack(seconds, kind, server_id, HEADER_SIZE + body_size, 0, flags)


def inflate_event(event: bytes, body: bytes, kind: int) -> bytes:
    """The plain rows event for a compressed rows event of MariaDB, which is compressed after its bitmaps."""
    plain = COMPRESSED_TYPES[EventType(kind)]
    fields = Fields(body)
    _post_header(fields, plain in _VERSION_2)
    columns = fields.packed_number()
    fields.take((columns + 7) // 8 * (2 if plain in (EventType.UPDATE_ROWS, EventType.UPDATE_ROWS_V1) else 1))
    rewritten = body[: fields.at] + inflate(body[fields.at :])
    return header_of(event, plain, len(rewritten)) + rewritten


def _post_header(fields: Fields, version2: bool) -> None:
    fields.take(8)
    if version2:
        extra = fields.number(2)
        if extra < 2:
            raise DamagedEvent("a rows event's extra data is shorter than its own length")
        fields.take(extra - 2)


class Images:
    """Copies the row images of an event, and replaces some of their values."""

    def __init__(self, words: Words, table: int, types: list[int]) -> None:
        self.columns = int(words[table + layout.TABLE_COLUMNS])
        self._types = types
        at = int(words[table + layout.TABLE_SPECS])
        self._sizes = [
            (int(words[at + layout.SPEC * index]), int(words[at + layout.SPEC * index + layout.SPEC_PREFIX]))
            for index in range(self.columns)
        ]
        self.json = [index for index, kind in enumerate(types) if kind == column_types.JSON.number]

    def unpack_values(self, event: bytes, body: bytes, kind: int) -> bytes:
        """The rows event with decompressed values of its COMPRESSED columns."""
        fields = Fields(body)
        _post_header(fields, kind in _VERSION_2)
        bitmaps = self._bitmaps(fields, kind in (EventType.UPDATE_ROWS, EventType.UPDATE_ROWS_V1))
        out = bytearray(body[: fields.at])

        def value(index: int, data: bytes) -> bytes:
            return unpack_value(data) if WIRE_TYPES[self._types[index]].is_compressed else data

        while fields.left:
            for bitmap in bitmaps:
                self._copy(fields, bitmap, out, {}, value)
        return header_of(event, kind, len(out)) + bytes(out)

    def complete_images(self, event: bytes, body: bytes) -> bytes:
        """The UPDATE_ROWS event for a PARTIAL_UPDATE_ROWS event: changes are applied to the before image's documents.

        Before each after image are value_options (packed; bit 0: partial JSON) and then, for each JSON column of the
        table, a bit: 1 if its value is a list of changes.
        """
        fields = Fields(body)
        _post_header(fields, True)
        before_bitmap, after_bitmap = self._bitmaps(fields, True)
        out = bytearray(body[: fields.at])
        while fields.left:
            before: dict[int, bytes] = {}
            self._copy(fields, before_bitmap, out, before, lambda _place, data: data)
            partial: set[int] = set()
            if fields.packed_number() & 1:
                bits = fields.take((len(self.json) + 7) // 8)
                partial = {index for bit, index in enumerate(self.json) if bits[bit >> 3] >> (bit & 7) & 1}

            def value(index: int, data: bytes, partial: set[int] = partial, before: dict[int, bytes] = before) -> bytes:
                if index not in partial:
                    return data
                if index not in before:
                    raise DamagedEvent(
                        "a JSON column is updated in part (binlog_row_value_options=PARTIAL_JSON), and its before "
                        "image is not in the event (binlog_row_image=MINIMAL): the document is not known. Set "
                        "binlog_row_image=FULL, or binlog_row_value_options='', for all sessions; seek the pipeline "
                        "past this transaction, and publish the table's rows by a snapshot"
                    )
                return partial_json.apply(before[index], data)

            self._copy(fields, after_bitmap, out, {}, value)
        return header_of(event, EventType.UPDATE_ROWS, len(out)) + bytes(out)

    def _bitmaps(self, fields: Fields, update: bool) -> list[bytes]:
        if fields.packed_number() != self.columns:
            raise DamagedEvent("a rows event has another number of columns than its TABLE_MAP")
        size = (self.columns + 7) // 8
        return [fields.take(size) for _ in range(2 if update else 1)]

    def _copy(
        self,
        fields: Fields,
        bitmap: bytes,
        out: bytearray,
        seen: dict[int, bytes],
        change: Callable[[int, bytes], bytes],
    ) -> None:
        present = [index for index in range(self.columns) if bitmap[index >> 3] >> (index & 7) & 1]
        if not present:
            raise DamagedEvent("a row image has no columns")
        nulls = fields.take((len(present) + 7) // 8)
        out += nulls
        for bit, index in enumerate(present):
            if nulls[bit >> 3] >> (bit & 7) & 1:
                continue
            fixed, prefix = self._sizes[index]
            data = fields.take(fields.number(prefix) if prefix else fixed)
            seen[index] = data
            data = change(index, data)
            if prefix:
                if len(data) >> (8 * prefix):
                    raise DamagedEvent("a value is longer than its column's length prefix allows")
                out += len(data).to_bytes(prefix, "little")
            out += data


def unpack_value(data: bytes) -> bytes:
    """The decompressed value of a COMPRESSED column. The stored value is empty, or u8 and data.

    The first byte is 0 if the data is not compressed. Otherwise bits 4-7 are the method (8 zlib), bit 3 says whether
    the stream is raw, and bits 0-2 are the number of bytes of the size, which follows in big-endian order.
    """
    if not data or data[0] == 0:
        return data[1:]
    head = data[0]
    if head >> 4 != 8:
        raise DamagedEvent(f"a COMPRESSED column's value has method {head >> 4}: expected 8 (zlib)")
    width = head & 7
    size = int.from_bytes(data[1 : 1 + width], "big")
    if size > _MAX_VALUE:
        raise DamagedEvent(f"a COMPRESSED column's value says that it holds {size} bytes")
    unpack = zlib.decompressobj(-zlib.MAX_WBITS if head & 8 else zlib.MAX_WBITS)
    try:
        plain = unpack.decompress(data[1 + width :], size + 1)
    except zlib.error as error:
        raise DamagedEvent(f"a COMPRESSED column's value cannot be unpacked: {error}") from error
    if len(plain) != size:
        raise DamagedEvent("a COMPRESSED column's value does not hold the bytes that it claims")
    return plain
