"""Reads a binlog file as its server would send it: checks the magic number, returns FORMAT_DESCRIPTION and a range."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from changefeed.binlog.events.framing import (
    CHECKSUM_SIZE,
    ENCRYPTED_MAGIC,
    HEADER,
    HEADER_SIZE,
    LEAST_DESCRIPTION,
    MAGIC,
    MOST_DESCRIPTION,
    EventType,
    dumped_description,
)
from changefeed.errors import BinlogFormatError
from changefeed.model.coordinates import FIRST_POSITION

_CHUNK_BYTES = 1 << 20
_FIRST = FIRST_POSITION.to_bytes(8, "little")


def check_magic(stream: BinaryIO, name: str) -> None:
    """Read the first four bytes of ``stream``; raises BinlogFormatError for a file that is encrypted or no binlog."""
    magic = stream.read(len(MAGIC))
    if magic == ENCRYPTED_MAGIC:
        raise BinlogFormatError(
            f"{name}: the file is encrypted (binlog_encryption=ON): only its server can read it. Fetch it with "
            "`mysqlbinlog --raw --read-from-remote-server`, which gives plain files."
        )
    if magic != MAGIC:
        # The message does not quote the first bytes: the file may be one that the user must not read.
        raise BinlogFormatError(f"{name}: not a binlog: it does not begin with {MAGIC!r}")


def dumped_chunks(stream: BinaryIO, name: str, start: int, end: int) -> Iterator[bytes]:
    """Yield the file's FORMAT_DESCRIPTION, then its bytes in ``[start, end)``, in chunks of about a megabyte.

    ``stream`` must be seekable, and be at the end of the magic number. Raises BinlogFormatError for a file that does
    not begin with a FORMAT_DESCRIPTION, or that ends before ``end``.
    """
    description = _description(stream, f"binlog {name}:{FIRST_POSITION}")
    in_range = start == FIRST_POSITION
    yield dumped_description(description, in_range=in_range)[: end - FIRST_POSITION if in_range else None]
    position = start + len(description) if in_range else start
    stream.seek(position)
    while position < end:
        chunk = stream.read(min(_CHUNK_BYTES, end - position))
        if not chunk:
            raise BinlogFormatError(f"binlog {name}: expected the file to reach {end}, found its end at {position}")
        position += len(chunk)
        yield chunk


LONGEST_CLOSING = HEADER_SIZE + 8 + 512 + CHECKSUM_SIZE
"""The size of a ROTATE event with the longest name of a file; a STOP event is smaller."""


def is_closed_by(tail: bytes, *, checksum: bool) -> bool:
    """Whether a binlog file ends in a ROTATE or STOP event; ``tail`` has its last LONGEST_CLOSING bytes, or all bytes.

    A server writes one of these events when it closes a file; a server that crashes writes none.
    """
    footer = CHECKSUM_SIZE * checksum
    for at in range(len(tail) - HEADER_SIZE - footer, -1, -1):
        _, kind, _, size, _, _ = HEADER.unpack_from(tail, at)
        if at + size != len(tail) or kind not in (EventType.STOP, EventType.ROTATE):
            continue
        body = tail[at + HEADER_SIZE : len(tail) - footer]
        is_whole = not footer or zlib.crc32(tail[at:-footer]) == int.from_bytes(tail[-footer:], "little")
        if is_whole and (not body if kind == EventType.STOP else body[:8] == _FIRST and len(body) > 8):
            return True
    return False


def _description(stream: BinaryIO, where: str) -> bytes:
    header = stream.read(HEADER_SIZE)
    if len(header) < HEADER_SIZE:
        raise BinlogFormatError(f"{where}: the file ends inside its first event")
    _, kind, _, size, _, _ = HEADER.unpack(header)
    if kind != EventType.FORMAT_DESCRIPTION or not LEAST_DESCRIPTION <= size <= MOST_DESCRIPTION:
        raise BinlogFormatError(
            f"{where}: the first event is no FORMAT_DESCRIPTION of {LEAST_DESCRIPTION} to {MOST_DESCRIPTION} bytes: "
            "this is no binlog"
        )
    body = stream.read(size - HEADER_SIZE)
    if len(body) < size - HEADER_SIZE:
        raise BinlogFormatError(f"{where}: the file ends inside its first event")
    return header + body
