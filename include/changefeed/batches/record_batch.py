"""Kafka's record batch, version 2: its header, and its records in plain Python.

What is many goes through the kernel (`binlog.kernel.records`); this is for what is rare, and what the kernel is held
against. Source: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from changefeed.batches.compression import Codec, Data, codec_of
from changefeed.block import GTID_HEADER, ID_HEADER, Header, Message

HEAD = struct.Struct(">qiibIhiqqqhii")
"""A batch before its records: base offset, length, leader epoch, magic, CRC, attributes, last offset's difference,
first and greatest timestamp, producer's id and epoch, base sequence, number of records."""
HEAD_BYTES = HEAD.size
_BEFORE_LENGTH = 12
"""Bytes of a batch that its length does not count: base offset, and the length itself."""
_MAGIC = 2
_NO_PRODUCER, _NO_EPOCH, _NO_SEQUENCE, _NO_LEADER_EPOCH = -1, -1, -1, -1


class Record(NamedTuple):
    """A record as Kafka has it; ``timestamp_ms`` is its whole timestamp, not the difference that is stored."""

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
    """A batch of ``count`` compressed ``records``; producer, sequence and CRC are left to whoever sends it."""
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
    """The records of a batch, in order."""
    view = memoryview(batch)
    *_, attributes, _, first_ms, _, _, _, _, count = HEAD.unpack_from(view)
    data = memoryview(codec_of(attributes).decompress(view[HEAD_BYTES:]))
    at = 0
    for _ in range(count):
        size, at = _varint(data, at)
        yield _read(data[at : at + size], first_ms)
        at += size


def _read(data: memoryview, first_ms: int) -> Record:
    delta, at = _varint(data, 1)
    _, at = _varint(data, at)
    key, at = _part(data, at)
    value, at = _part(data, at)
    count, at = _varint(data, at)
    headers = []
    for _ in range(count):
        name, at = _part(data, at)
        text, at = _part(data, at)
        headers.append(((name or b"").decode(), text or b""))
    return Record(first_ms + delta, key, value, headers)


def written(records: Sequence[Record]) -> bytes:
    """``records`` one after the other, not compressed."""
    first_ms = records[0].timestamp_ms
    out = bytearray()
    for number, record in enumerate(records):
        body = b"".join(
            (
                b"\0",
                _as_varint(record.timestamp_ms - first_ms),
                _as_varint(number),
                _as_part(record.key),
                _as_part(record.value),
                _as_varint(len(record.headers)),
                *(_as_part(name.encode()) + _as_part(value) for name, value in record.headers),
            )
        )
        out += _as_varint(len(body)) + body
    return bytes(out)


def headers_of(message: Message) -> list[Header]:
    """The headers of a message's record."""
    headers = [(ID_HEADER, message.event_id)]
    if message.gtid:
        headers.append((GTID_HEADER, message.gtid))
    if message.header is not None:
        headers.append(message.header)
    return headers


def _as_part(data: bytes | None) -> bytes:
    return _as_varint(-1) if data is None else _as_varint(len(data)) + data


def _as_varint(value: int) -> bytes:
    rest, out = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _part(data: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1 ^ -(value & 1), at
        shift += 7
