"""Kafka's numbers of varying length, and byte strings behind their length, in plain Python.

Zigzag: small numbers of either sign take few bytes. The kernel's own are in `binlog.kernel.varint`.
Source: https://kafka.apache.org/documentation/#recordbatch, "VARINT" of https://kafka.apache.org/protocol#protocol_types
"""

from __future__ import annotations


def written_varint(value: int) -> bytes:
    """``value`` of either sign."""
    rest, out = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def written_part(data: bytes | None) -> bytes:
    """``data`` behind its length; None has length -1."""
    return written_varint(-1) if data is None else written_varint(len(data)) + data


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at ``at``, and where it ends. Raises IndexError for one that is cut off, or has more than 64 bits."""
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
    """The byte string at ``at``, and where it ends."""
    size, at = varint(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)
