"""Decompresses TRANSACTION_PAYLOAD, an event that contains all events of a transaction.

Body: fields, each with type (packed), length (packed) and value; then the payload. Types of fields: 1 the payload's
size, 2 compression (0 zstd, 255 none), 3 uncompressed size, 0 the end of the fields.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Transaction__payload__event.html
"""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

from changefeed.binlog.events.framing import DamagedEvent, Fields

_END, _SIZE, _COMPRESSION, _UNCOMPRESSED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255
_PART = 1 << 18


def parts(body: bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of the events inside, in parts; raises DamagedEvent."""
    fields = Fields(body)
    size = uncompressed = 0
    compression = _ZSTD
    while (kind := fields.packed_number()) != _END:
        value = Fields(fields.take(fields.packed_number()))
        if kind == _SIZE:
            size = value.packed_number()
        elif kind == _COMPRESSION:
            compression = value.packed_number()
        elif kind == _UNCOMPRESSED_SIZE:
            uncompressed = value.packed_number()
    data = fields.take(size)
    if compression == _NONE:
        yield data
        return
    if compression != _ZSTD:
        raise DamagedEvent(f"TRANSACTION_PAYLOAD has compression {compression}: expected 0 (zstd) or 255 (none)")
    total = 0
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        while part := reader.read(_PART):
            total += len(part)
            if total > uncompressed:
                break
            yield part
    except zstandard.ZstdError as error:
        raise DamagedEvent(f"TRANSACTION_PAYLOAD cannot be unpacked: {error}") from error
    if total != uncompressed:
        raise DamagedEvent(f"TRANSACTION_PAYLOAD does not hold the {uncompressed} bytes that it claims")
