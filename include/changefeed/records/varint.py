"""Kafka's varints, and byte strings with their length before them, in plain Python.

In zigzag encoding small numbers of either sign take few bytes. The kernel's varints are in `native.varint`.
Source: https://kafka.apache.org/documentation/#recordbatch, "VARINT" of https://kafka.apache.org/protocol#protocol_types
"""

from __future__ import annotations


def encode_varint(value: int) -> bytes:
    """The zigzag varint of ``value``."""
    rest, out = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_bytes(data: bytes | None) -> bytes:
    """The length of ``data`` and ``data``. None has length -1."""
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at ``at``, and its end. Raises IndexError for a number that is cut off or has more than 64 bits."""
    value = shift = 0
    while True:
        if shift > 63:
            raise IndexError("a number of more than 64 bits")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1 ^ -(value & 1), at
        shift += 7


def part(data: memoryview, at: int) -> tuple[bytes | None, int]:
    """The byte string at ``at``, None for length -1, and its end."""
    size, at = varint(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)
