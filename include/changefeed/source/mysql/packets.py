"""Splits the packets of a dump into events, with one kernel call for a large read.

A packet: size u24, number u8, body; a body of 16,777,215 bytes continues in the next packet. In a dump the first byte
of a body is 0 for an event, 0xFE for the end, 0xFF for an error; after 0 the event's bytes follow as they are in the
file.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

import numpy as np

from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words, copy, u8, u16

AT, FILLED, OUT, CONTINUED = 0, 1, 2, 3
"""Words of the state: address of the next packet, bytes of input, bytes of events written, and whether the next packet
continues the last packet's event."""
STATE_WORDS = 4
MORE, OTHER = 0, 1
"""The codes of `split`. MORE: the input ends inside a packet. OTHER: the next packet is not an event."""

_LARGEST = 0xFFFFFF


_HEARTBEAT, _HEARTBEAT_V2, _FORMAT_DESCRIPTION, _ARTIFICIAL = 27, 41, 15, 0x20
_START_ENCRYPTION = 164


@inline
def _is_stream_only(data: Bytes, at: int) -> bool:
    """Whether the event is in no file: a heartbeat, or an artificial event other than FORMAT_DESCRIPTION.

    MariaDB repeats the START_ENCRYPTION of an encrypted file before a later range, with next position 0.
    """
    kind = u8(data, at + 4)
    if kind == _START_ENCRYPTION and u16(data, at + 13) == 0 and u16(data, at + 15) == 0:
        return True
    if kind == _HEARTBEAT or kind == _HEARTBEAT_V2:
        return True
    return kind != _FORMAT_DESCRIPTION and (u16(data, at + 17) & _ARTIFICIAL) != 0


@entry("int64(uint8[::1], uint8[::1], int64[::1])")
def split(data: Bytes, events: Bytes, state: Words) -> int:
    """Copy the events in ``data`` to ``events``, without packet headers and artificial events; returns a code.

    ``events`` must be as large as ``data``."""
    while True:
        at = state[AT]
        left = state[FILLED] - at
        if left < 5 and not (left == 4 and state[CONTINUED] == 1):
            return MORE
        size = u16(data, at) | u8(data, at + 2) << 16
        if left < 4 + size:
            return MORE
        skip = 0
        if state[CONTINUED] == 0:
            if size == 0 or u8(data, at + 4) != 0:
                return OTHER
            skip = 1
            if size >= 20 and _is_stream_only(data, at + 5):
                state[AT] = at + 4 + size
                continue
        copy(events, state[OUT], data, at + 4 + skip, size - skip)
        state[OUT] += size - skip
        state[AT] = at + 4 + size
        state[CONTINUED] = 1 if size == _LARGEST else 0


class PacketSplitter:
    """Converts bytes that were read from a connection into bytes of events.

    After `feed`, `refused` is the body of the first packet that is not an event (an error, or the end), or None.
    """

    def __init__(self, size: int = 1 << 20) -> None:
        self._data: Bytes = np.empty(size, np.uint8)
        self._events: Bytes = np.empty(size, np.uint8)
        self._state = np.zeros(STATE_WORDS, np.int64)
        self.refused: bytes | None = None

    def room(self) -> memoryview:
        """The free part of the buffer, for the next read."""
        state = self._state
        at, filled = int(state[AT]), int(state[FILLED])
        if at > 0:
            self._data[: filled - at] = self._data[at:filled].copy()
            state[AT], state[FILLED] = 0, filled - at
            filled -= at
        if filled == len(self._data):  # a packet, which has at most 16 MB, is larger than the buffer
            self._data = np.concatenate([self._data, np.empty_like(self._data)])
            self._events = np.empty(len(self._data), np.uint8)
        return memoryview(self._data)[filled:]  # type: ignore[arg-type]

    def feed(self, count: int) -> memoryview:
        """The bytes of the events in the ``count`` bytes that were read into `room`; valid until the next call."""
        state = self._state
        state[FILLED] += count
        state[OUT] = 0
        if split(self._data, self._events, state) == OTHER:
            at = int(state[AT])
            size = int.from_bytes(self._data[at : at + 3].tobytes(), "little")
            self.refused = self._data[at + 4 : at + 4 + size].tobytes()
        return memoryview(self._events)[: int(state[OUT])]  # type: ignore[arg-type]
