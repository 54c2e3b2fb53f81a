"""Checksums that are not secure against attacks: two words over all bytes, computed in steps of eight bytes."""

from __future__ import annotations

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, i64, little_endian, shift_right, wrap

SEED, OTHER_SEED = 0x243F6A8885A308D3, 0x13198A2E03707344
_FACTOR, _OTHER_FACTOR = 0x2545F4914F6CDD1D, 0x369DEA0F31A53F85
"""The factors are odd, so that no step loses information: if two texts of the same length differ in one word, their
checksums differ."""
_FIRST_MIX, _SECOND_MIX = -0x00AE502812AA7333, -0x3B314601E57A13AD
"""The factors of MurmurHash3's last step, as signed words."""


@inline
def _step(word: int, value: int, factor: int) -> int:
    product = wrap((word ^ value) * factor)
    return product ^ shift_right(product, 29)


@inline
def checksum(data: Bytes, start: int, end: int, seed: int, factor: int) -> int:
    """The checksum of ``data[start:end]`` with ``seed``. It can be the seed for the following bytes."""
    word = _step(seed, int(end - start), factor)
    while start + 8 <= end:
        word = _step(word, i64(data, start), factor)
        start += 8
    if start < end:
        word = _step(word, little_endian(data, start, end - start), factor)
    return word


@inline
def first_checksum(data: Bytes, start: int, end: int, seed: int) -> int:
    """The result of `checksum` with the first factor."""
    return checksum(data, start, end, seed, _FACTOR)


@inline
def other_checksum(data: Bytes, start: int, end: int, seed: int) -> int:
    """The result of `checksum` with the other factor, which is independent of the first checksum."""
    return checksum(data, start, end, seed, _OTHER_FACTOR)


@inline
def mix(word: int) -> int:
    """A word in which each bit of ``word`` affects all bits: the last step of a checksum."""
    word = wrap((word ^ shift_right(word, 33)) * _FIRST_MIX)
    word = wrap((word ^ shift_right(word, 33)) * _SECOND_MIX)
    return word ^ shift_right(word, 33)
