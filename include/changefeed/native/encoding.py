"""Writes binary values as text: base64 and hexadecimal digits."""

from __future__ import annotations

import numpy as np

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, put8, put16, put32, u8, u16

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_BASE64 = np.frombuffer(_LETTERS + b"+/" + _LETTERS + b"-_", np.uint8).copy()
_URL_SAFE = 64
"""The index at which the alphabet for URLs begins."""
_HEX = np.frombuffer("".join(f"{n:02x}" for n in range(256)).encode(), np.uint8).copy()


@inline
def put_base64(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write ``data[start:end]`` as base64 with padding.

    The caller provides 4 bytes of room for every 3 bytes or less.
    """
    return _put_base64(out, at, data, start, end, 0)


@inline
def put_base64_url(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """As `put_base64`, with the alphabet for URLs and file names (RFC 4648, section 5)."""
    return _put_base64(out, at, data, start, end, _URL_SAFE)


@inline
def _put_base64(out: Bytes, at: int, data: Bytes, start: int, end: int, letters: int) -> int:
    while start + 3 <= end:
        word = u8(data, start) << 16 | u8(data, start + 1) << 8 | u8(data, start + 2)
        put32(
            out,
            at,
            u8(_BASE64, letters + (word >> 18))
            | u8(_BASE64, letters + ((word >> 12) & 63)) << 8
            | u8(_BASE64, letters + ((word >> 6) & 63)) << 16
            | u8(_BASE64, letters + (word & 63)) << 24,
        )
        start += 3
        at += 4
    if start < end:
        word = u8(data, start) << 16
        if start + 1 < end:
            word |= u8(data, start + 1) << 8
        put8(out, at, u8(_BASE64, letters + (word >> 18)))
        put8(out, at + 1, u8(_BASE64, letters + ((word >> 12) & 63)))
        put8(out, at + 2, u8(_BASE64, letters + ((word >> 6) & 63)) if start + 1 < end else 61)
        put8(out, at + 3, 61)
        at += 4
    return at


@inline
def put_hex(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write ``data[start:end]`` as lower-case hexadecimal digits. The caller provides 2 bytes of room for each byte."""
    while start < end:
        put16(out, at, u16(_HEX, 2 * u8(data, start)))
        start += 1
        at += 2
    return at
