"""Masks that need the text of a value: the kernel writes the text into the message, and replaces it by the masked
text."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.sha256 import BLOCK, DIGEST, PADDING, put_sha256
from changefeed.native.compiled import inline
from changefeed.native.encoding import put_hex
from changefeed.native.memory import Bytes, Words, copy, put8, u8
from changefeed.native.varint import put_varint

_HASHING = 2 * DIGEST + 2 + BLOCK + DIGEST + PADDING
"""Room for a hash besides salt and text: the digits in quotes, HMAC's block and digest, and the padding."""
_QUOTE, _BACKSLASH, _U = 34, 92, 117


@inline
def put_masked(
    out: Bytes, begin: int, end: int, room: int, words: Words, mask: int, literals: Bytes, scratch: Words
) -> int:
    """Replace the value ``out[begin:end]`` by its result under the mask at ``words[mask]``; the new end, or FULL."""
    if words[mask] == layout.MASK_FIRST:
        return _cut(out, begin, end, words[mask + 1])
    head_size = words[mask + 2]
    if end + head_size + (end - begin) + _HASHING > room:
        return FULL
    message = end + 2 * DIGEST + 2  # after the room for the digits, which may be longer than the value
    copy(out, message, literals, words[mask + 1], head_size)
    message_end = _put_unquoted(out, message + head_size, begin, end)
    if words[mask] == layout.MASK_HMAC_SHA256:
        message_end = put_sha256(out, message + BLOCK, message, message_end, scratch)
        copy(out, message, literals, words[mask + 3], BLOCK)
    message_end = put_sha256(out, message, message, message_end, scratch)
    put8(out, begin, _QUOTE)
    at = put_hex(out, begin + 1, out, message, message_end)
    put8(out, at, _QUOTE)
    return at + 1


@inline
def put_sized_string(out: Bytes, begin: int, end: int, room: int) -> int:
    """Replace the JSON string ``out[begin:end]`` by its length and its text; the new end, or FULL."""
    text = end + 16
    if text + end - begin > room:
        return FULL
    size = _put_unquoted(out, text, begin, end) - text
    begin = put_varint(out, begin, size)
    for byte in range(size):
        put8(out, begin + byte, u8(out, text + byte))
    return begin + size


@inline
def _cut(out: Bytes, begin: int, end: int, count: int) -> int:
    """End the JSON string ``out[begin:end]`` after ``count`` characters; an escape counts as a character."""
    at = begin + 1
    while count > 0 and at < end - 1:
        if u8(out, at) == _BACKSLASH:
            at += 6 if u8(out, at + 1) == _U else 2
        else:
            at += 1
            while u8(out, at) & 0xC0 == 0x80:
                at += 1
        count -= 1
    put8(out, at, _QUOTE)
    return at + 1


@inline
def _put_unquoted(out: Bytes, at: int, begin: int, end: int) -> int:
    """Write the text of the JSON string ``out[begin:end]`` without escapes; any other value is written unchanged."""
    if u8(out, begin) != _QUOTE:
        copy(out, at, out, begin, end - begin)
        return at + end - begin
    begin += 1
    end -= 1
    while begin < end:
        byte = u8(out, begin)
        begin += 1
        if byte == _BACKSLASH:
            byte = u8(out, begin)
            begin += 1
            if byte == _U:  # only characters below 32 have this escape
                byte = u8(out, begin + 2) - 48 << 4
                low = u8(out, begin + 3)
                byte += low - 48 if low < 58 else low - 87
                begin += 4
            elif byte == 98:
                byte = 8
            elif byte == 116:
                byte = 9
            elif byte == 110:
                byte = 10
            elif byte == 102:
                byte = 12
            elif byte == 114:
                byte = 13
        put8(out, at, byte)
        at += 1
    return at
