"""Kafka's record batch, version 2: its header, and its records in plain Python.

The kernel writes most records. This module is for few records, and the reference for the kernel.
Source: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from changefeed.records.block import GTID_HEADER, ID_HEADER, Header, Message
from changefeed.records.compression import Codec, Data, codec_of
from changefeed.records.varint import encode_bytes, encode_varint, part, varint

HEAD = struct.Struct(">qiibIhiqqqhii")
"""The header of a batch: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and
greatest timestamp, producer id, producer epoch, base sequence, number of records."""
HEAD_BYTES = HEAD.size
_BEFORE_LENGTH = 12
"""Bytes at the begin of a batch that its length does not count: the base offset, and the length itself."""
_MAGIC = 2
_NO_PRODUCER, _NO_EPOCH, _NO_SEQUENCE, _NO_LEADER_EPOCH = -1, -1, -1, -1


class Record(NamedTuple):
    """A record. ``timestamp_ms`` is its full timestamp; Kafka stores the difference to the batch's first."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


@dataclass(frozen=True)
class Times:
    """The first and the greatest timestamp of a batch's records, in milliseconds."""

    first_ms: int
    greatest_ms: int


def record_batch(records: Data, count: int, codec: Codec, times: Times) -> bytes:
    """A batch of ``count`` compressed ``records``. The sender sets producer, sequence and CRC."""
    size = memoryview(records).nbytes
    head = HEAD.pack(
        0,
        HEAD_BYTES - _BEFORE_LENGTH + size,
        _NO_LEADER_EPOCH,
        _MAGIC,
        0,
        codec.number,
        count - 1,
        times.first_ms,
        times.greatest_ms,
        _NO_PRODUCER,
        _NO_EPOCH,
        _NO_SEQUENCE,
        count,
    )
    return b"".join((head, records))


def records_of(batch: Data) -> Iterator[Record]:
    """Yield the records of a batch, in order."""
    view = memoryview(batch)
    *_, attributes, _, first_ms, _, _, _, _, count = HEAD.unpack_from(view)
    data = memoryview(codec_of(attributes).decompress(view[HEAD_BYTES:]))
    at = 0
    for _ in range(count):
        size, at = varint(data, at)
        yield _read(data[at : at + size], first_ms)
        at += size


def records_in(batch: Data) -> tuple[bytes, int]:
    """The uncompressed records of a batch, and their number."""
    view = memoryview(batch)
    *_, attributes, _, _, _, _, _, _, count = HEAD.unpack_from(view)
    return codec_of(attributes).decompress(view[HEAD_BYTES:]), count


def record_in(data: memoryview) -> Record:
    """The record of bytes that begin with its length. Its timestamp is the difference to the batch's first."""
    _, at = varint(data, 0)
    return _read(data[at:], 0)


def _read(data: memoryview, first_ms: int) -> Record:
    delta, at = varint(data, 1)
    _, at = varint(data, at)
    key, at = part(data, at)
    value, at = part(data, at)
    count, at = varint(data, at)
    headers = []
    for _ in range(count):
        name, at = part(data, at)
        text, at = part(data, at)
        headers.append(((name or b"").decode(), text or b""))
    return Record(first_ms + delta, key, value, headers)


def encode_records(records: Sequence[Record]) -> bytes:
    """The bytes of ``records``, one after the other and uncompressed."""
    first_ms = records[0].timestamp_ms
    out = bytearray()
    for number, record in enumerate(records):
        body = b"".join(
            (
                b"\0",
                encode_varint(record.timestamp_ms - first_ms),
                encode_varint(number),
                encode_bytes(record.key),
                encode_bytes(record.value),
                encode_varint(len(record.headers)),
                *(encode_bytes(name.encode()) + encode_bytes(value) for name, value in record.headers),
            )
        )
        out += encode_varint(len(body)) + body
    return bytes(out)


def headers_of(message: Message) -> list[Header]:
    """The headers of the record of a message."""
    headers = [(ID_HEADER, message.event_id)]
    if message.gtid:
        headers.append((GTID_HEADER, message.gtid))
    headers += message.headers
    return headers
