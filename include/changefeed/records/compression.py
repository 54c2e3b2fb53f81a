"""How the records of a batch are compressed: the codecs of Kafka, by the names that its `compression.type` has.

Source: https://kafka.apache.org/documentation/#recordbatch (attributes, bits 0 to 2)
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass

import lz4.frame
import snappy
import zstandard

Data = bytes | bytearray | memoryview
"""Bytes that are only read."""

_SNAPPY_BLOCK_BYTES = 32 * 1024
_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
"""Of snappy-java's stream, which Kafka's clients write and read: magic, version, and the version that can read it."""
_SIZE = struct.Struct(">i")
_LZ4_LEVEL = -2
"""Levels below 0 are lz4's accelerations. Of this one messages take 3 % more bytes, and a quarter less time."""


Compress = Callable[[Data, int | None], bytes]
"""Compresses at a level; None is the codec's own default."""


@dataclass(frozen=True)
class Codec:
    """One of Kafka's codecs, and its ``number`` in a batch's attributes."""

    name: str
    number: int
    compress: Compress
    decompress: Callable[[Data], bytes]


def _lz4(data: Data, level: int | None) -> bytes:
    # Kafka's consumers read independent blocks only.
    chosen = _LZ4_LEVEL if level is None else level
    return bytes(lz4.frame.compress(data, compression_level=chosen, block_linked=False))


def _zstd(data: Data, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Data) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:  # frames of other writers do not say their size
        return reader.read()


def _gzip(data: Data, level: int | None) -> bytes:
    return gzip.compress(data, 6 if level is None else level, mtime=0)


def _snappy(data: Data, _level: int | None) -> bytes:
    view, parts = memoryview(data), [_SNAPPY_HEADER]
    for at in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block: bytes = snappy.compress(bytes(view[at : at + _SNAPPY_BLOCK_BYTES]))
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Data) -> bytes:
    view, parts, at = memoryview(data), [], len(_SNAPPY_HEADER)
    while at < len(view):
        (size,) = _SIZE.unpack_from(view, at)
        parts.append(snappy.uncompress(bytes(view[at + _SIZE.size : (at := at + _SIZE.size + size)])))
    return b"".join(parts)


CODECS = {
    codec.name: codec
    for codec in (
        Codec("none", 0, lambda data, _level: bytes(data), bytes),
        Codec("gzip", 1, _gzip, gzip.decompress),
        Codec("snappy", 2, _snappy, _unsnappy),
        Codec("lz4", 3, _lz4, lz4.frame.decompress),
        Codec("zstd", 4, _zstd, _unzstd),
    )
}
"""Kafka's codecs by name; their levels are `publish_settings.LEVELS`."""

_BY_NUMBER = {codec.number: codec for codec in CODECS.values()}


def codec_of(attributes: int) -> Codec:
    """The codec that a batch's attributes name. Raises KeyError for one that Kafka does not have."""
    return _BY_NUMBER[attributes & 7]
