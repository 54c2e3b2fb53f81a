"""Compressed events that are larger than their stated size: they are unpacked only up to that size."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
import zstandard

from changefeed.binlog.events import payload
from changefeed.binlog.events.framing import DamagedEvent
from changefeed.binlog.events.query_event import inflate

_PLAIN = bytes(256 << 20)
_CLAIMED = 1000
_MOST_BYTES = 16 << 20


def _packed(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfe" + number.to_bytes(8, "little")


def _field(kind: int, number: int) -> bytes:
    value = _packed(number)
    return bytes([kind, len(value)]) + value


def _payload(data: bytes, claimed: int) -> bytes:
    return _field(1, len(data)) + _field(2, 0) + _field(3, claimed) + b"\0" + data


def _compressed(data: bytes, claimed: int) -> bytes:
    return bytes([4]) + claimed.to_bytes(4, "big") + data


def test_transaction_payload_larger_than_its_stated_size_is_refused() -> None:
    body = _payload(zstandard.ZstdCompressor().compress(_PLAIN), _CLAIMED)
    tracemalloc.start()
    with pytest.raises(DamagedEvent, match="does not hold the 1000 bytes that it claims"):
        for _ in payload.parts(body):
            pass
    assert tracemalloc.get_traced_memory()[1] < _MOST_BYTES
    tracemalloc.stop()


def test_compressed_event_larger_than_its_stated_size_is_refused() -> None:
    body = _compressed(zlib.compress(_PLAIN), _CLAIMED)
    tracemalloc.start()
    with pytest.raises(DamagedEvent, match="does not hold the 1000 bytes that it claims"):
        inflate(body)
    assert tracemalloc.get_traced_memory()[1] < _MOST_BYTES
    tracemalloc.stop()


def test_compressed_event_above_the_servers_limit_is_refused() -> None:
    with pytest.raises(DamagedEvent, match="says that it holds 4294967295 bytes"):
        inflate(_compressed(zlib.compress(b"x"), 0xFFFFFFFF))
