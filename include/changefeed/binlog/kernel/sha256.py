"""SHA-256 (FIPS 180-4) for masks, over bytes in a buffer that has room for the padding after them."""

from __future__ import annotations

import math

import numpy as np

from changefeed.binlog.kernel import layout
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, Words, big_endian, put8

PADDING = 72
"""The most bytes that are overwritten after the message."""
BLOCK, DIGEST = 64, 32
"""The sizes of a block, and of a digest."""

_MASK = 0xFFFFFFFF
_PRIMES = [number for number in range(2, 312) if all(number % by for by in range(2, math.isqrt(number) + 1))]


def _cube_root(number: int) -> int:
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle)
    return low


_START = np.array([math.isqrt(prime << 64) & _MASK for prime in _PRIMES[:8]], np.int64)
_ROUNDS = np.array([_cube_root(prime << 96) & _MASK for prime in _PRIMES], np.int64)


@inline
def _rotate(word: int, count: int) -> int:
    return (word >> count | word << (32 - count)) & _MASK


@inline
def put_sha256(out: Bytes, at: int, message: int, end: int, scratch: Words) -> int:
    """Write the digest of ``out[message:end]``, which has DIGEST bytes, at ``at``; returns the new end.

    Overwrites up to PADDING bytes after ``end``. ``at`` may be within the message.
    """
    bits = (end - message) * 8
    put8(out, end, 0x80)
    end += 1
    while (end - message) & 63 != 56:
        put8(out, end, 0)
        end += 1
    for shift in range(56, -8, -8):
        put8(out, end, bits >> shift & 255)
        end += 1
    state = layout.SHA256
    words = state + 8
    for index in range(8):
        scratch[state + index] = _START[index]
    while message < end:
        for index in range(16):
            scratch[words + index] = big_endian(out, message + 4 * index, 4)
        for index in range(words + 16, words + 64):
            early = scratch[index - 15]
            late = scratch[index - 2]
            early = _rotate(early, 7) ^ _rotate(early, 18) ^ early >> 3
            late = _rotate(late, 17) ^ _rotate(late, 19) ^ late >> 10
            scratch[index] = (scratch[index - 16] + early + scratch[index - 7] + late) & _MASK
        _compress(scratch, state, words)
        message += 64
    for index in range(8):
        for shift in range(24, -8, -8):
            put8(out, at, scratch[state + index] >> shift & 255)
            at += 1
    return at


@inline
def _compress(scratch: Words, state: int, words: int) -> None:
    a = scratch[state]
    b = scratch[state + 1]
    c = scratch[state + 2]
    d = scratch[state + 3]
    e = scratch[state + 4]
    f = scratch[state + 5]
    g = scratch[state + 6]
    h = scratch[state + 7]
    for index in range(64):
        mixed = _rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25)
        chosen = (e & f) ^ ((e ^ _MASK) & g)
        first = (h + mixed + chosen + _ROUNDS[index] + scratch[words + index]) & _MASK
        mixed = _rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22)
        second = mixed + ((a & b) ^ (a & c) ^ (b & c))
        h = g
        g = f
        f = e
        e = (d + first) & _MASK
        d = c
        c = b
        b = a
        a = (first + second) & _MASK
    scratch[state] = (scratch[state] + a) & _MASK
    scratch[state + 1] = (scratch[state + 1] + b) & _MASK
    scratch[state + 2] = (scratch[state + 2] + c) & _MASK
    scratch[state + 3] = (scratch[state + 3] + d) & _MASK
    scratch[state + 4] = (scratch[state + 4] + e) & _MASK
    scratch[state + 5] = (scratch[state + 5] + f) & _MASK
    scratch[state + 6] = (scratch[state + 6] + g) & _MASK
    scratch[state + 7] = (scratch[state + 7] + h) & _MASK
