"""Kafka's codecs for record batches, by the names of `compression.type`.

Source: https://kafka.apache.org/documentation/#recordbatch (attributes, bits 0 to 2)
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lz4.frame
import snappy
import zstandard

Data = bytes | bytearray | memoryview
"""Read-only bytes."""

_SNAPPY_BLOCK_BYTES = 32 * 1024
_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
"""The header of snappy-java's stream, which Kafka's clients use: magic, version, and the oldest version to read it."""
_SIZE = struct.Struct(">i")
_PART_BYTES = 1 << 20
_LZ4_LEVEL = -2
"""A negative level is an acceleration of lz4. This one produces 3 % more bytes in a quarter less time."""


Compress = Callable[[Data, int | None], bytes]
"""(data, level) -> the compressed data. Level None is the codec's default."""


MOST_UNPACKED = (1 << 31) - 1
"""Limit of the uncompressed size of a batch with rows. One row may have a gigabyte."""
MOST_OF_A_LOG = 128 << 20
"""Limit of the uncompressed size of a batch or value in a log that only changefeed writes. The schemas of 20,000 tables
fit."""


class UnpackedTooLargeError(ValueError):
    """The uncompressed data exceeds the limit. Half a megabyte can decompress to half a gigabyte."""


def inflate(data: bytes, most: int) -> bytes:
    """Decompressed zlib data. Raises UnpackedTooLargeError for more than ``most`` bytes, else zlib.error."""
    unpack = zlib.decompressobj()
    plain = unpack.decompress(data, most + 1)
    if len(plain) > most:
        raise UnpackedTooLargeError(f"unpacks to more than {most:,} bytes")
    if not unpack.eof:
        raise zlib.error("it has no end")
    return plain


@dataclass(frozen=True)
class Codec:
    """One of Kafka's codecs, with its ``number`` in the attributes of a batch."""

    name: str
    number: int
    compress: Compress
    unpack: Callable[[Data, int], bytes]
    """(data, limit) -> the decompressed data. If it exceeds the limit, the result may be cut off after the limit."""

    def decompress(self, data: Data, most: int = MOST_UNPACKED) -> bytes:
        """The decompressed data. Raises UnpackedTooLargeError, a ValueError, for more than ``most`` bytes."""
        plain = self.unpack(data, most)
        if len(plain) > most:
            raise UnpackedTooLargeError(f"unpacks to more than {most:,} bytes")
        return plain


def _lz4(data: Data, level: int | None) -> bytes:
    # Kafka's consumers read independent blocks only.
    chosen = _LZ4_LEVEL if level is None else level
    return bytes(lz4.frame.compress(data, compression_level=chosen, block_linked=False))


def _zstd(data: Data, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Data, most: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:  # frames of other writers may not have their size
        return _read(reader, most)


def _read(reader: Any, most: int) -> bytes:
    """Up to ``most`` + 1 bytes, read in parts, because one call would allocate a buffer of that size."""
    parts: list[bytes] = []
    left = most + 1
    while left and (part := reader.read(min(left, _PART_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _ungzip(data: Data, most: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as reader:
        return _read(reader, most)


def _unlz4(data: Data, most: int) -> bytes:
    unpack = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = unpack.decompress(bytes(data), max_length=most + 1)
    if not unpack.eof and len(plain) <= most:
        raise EOFError("an lz4 frame has no end")
    return plain


def _gzip(data: Data, level: int | None) -> bytes:
    return gzip.compress(data, 6 if level is None else level, mtime=0)


def _snappy(data: Data, _level: int | None) -> bytes:
    view, parts = memoryview(data), [_SNAPPY_HEADER]
    for at in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block: bytes = snappy.compress(bytes(view[at : at + _SNAPPY_BLOCK_BYTES]))
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Data, most: int) -> bytes:
    view, parts, at, left = memoryview(data), [], len(_SNAPPY_HEADER), most
    while at < len(view) and left >= 0:  # snappy expands a byte to 22 bytes at most
        (size,) = _SIZE.unpack_from(view, at)
        parts.append(snappy.uncompress(bytes(view[at + _SIZE.size : (at := at + _SIZE.size + size)])))
        left -= len(parts[-1])
    return b"".join(parts)


CODECS = {
    codec.name: codec
    for codec in (
        Codec("none", 0, lambda data, _level: bytes(data), lambda data, _most: bytes(data)),
        Codec("gzip", 1, _gzip, _ungzip),
        Codec("snappy", 2, _snappy, _unsnappy),
        Codec("lz4", 3, _lz4, _unlz4),
        Codec("zstd", 4, _zstd, _unzstd),
    )
}
"""Kafka's codecs by name. `publish_settings.LEVELS` has their levels."""

_BY_NUMBER = {codec.number: codec for codec in CODECS.values()}


def codec_of(attributes: int) -> Codec:
    """The codec in the attributes of a batch. Raises KeyError for an unknown codec."""
    return _BY_NUMBER[attributes & 7]
