"""Damaged row packets are refused: no read or write outside, whatever a server or a proxy sends."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys

import numpy as np

from changefeed.binlog.kernel import result_rows as rows
from changefeed.binlog.kernel.faults import TEXTS

CASES = 3000
DOCUMENT = b'{"a": [1, 1e15, -0.000001, 12.50, "\\" x"], "b": null}'
COLUMNS: list[tuple[tuple[int, int, int], bytes]] = [
    ((rows.FIXED, 8, 3), b"12345678"),
    ((rows.YEAR, 0, 0), b"\xea\x07"),
    ((rows.STRING, 2, 0), b"\x05hello"),
    ((rows.STRING, 3, 0), b"\xfc\x00\x01" + b"x" * 256),
    ((rows.BITS, 2, 0), b"\x02\x01\xff"),
    ((rows.DECIMAL, 12, 2), b"\x07-123.45"),
    ((rows.DECIMAL, 65, 30), b"\x1f12345678901234567890.1234567890"),
    ((rows.DATE, 0, 0), b"\x04\xea\x07\x0b\x16"),
    ((rows.DATETIME, 6, 0), b"\x0b\xea\x07\x0b\x16\x03\x25\x11\x40\xe2\x01\x00"),
    ((rows.TIMESTAMP, 3, 0), b"\x07\xea\x07\x0b\x16\x03\x25\x11"),
    ((rows.TIME, 2, 0), b"\x0c\x01\x01\x00\x00\x00\x03\x25\x11\x40\xe2\x01\x00"),
    ((rows.TIME, 0, 0), b"\x00"),
    ((rows.JSON, 0, 0), bytes([len(DOCUMENT)]) + DOCUMENT),
]


def packet(body: bytes, number: int = 0) -> bytes:
    return struct.pack("<I", len(body) | number << 24) + body


def turned(data: bytes, room: int = 1 << 16) -> tuple[int, int, bytes]:
    """What `convert_rows` returns, how many rows it turned, and their images."""
    chosen = np.array([word for words, _ in COLUMNS for word in words], np.int64)
    state = np.zeros(rows.STATE_WORDS, np.int64)
    state[rows.FILLED] = len(data)
    out = np.zeros(room, np.uint8)
    code = rows.convert_rows(np.frombuffer(data, np.uint8).copy(), state, chosen, out)
    return code, int(state[rows.ROWS]), out[: int(state[rows.OUT])].tobytes()


def main() -> None:
    """Each damaged packet is turned into some image, or refused with a fault that has words."""
    rng = random.Random(1)
    nulls = bytes((len(COLUMNS) + 9) // 8)
    complete_row = b"\0" + nulls + b"".join(value for _, value in COLUMNS)
    code, count, image = turned(packet(complete_row) + packet(b"\xfe\0\0\2\0"))
    assert (code, count) == (rows.END, 1), code
    assert turned(packet(complete_row), len(image))[0] == rows.ROOM
    refused = 0
    for _ in range(CASES):
        body = bytearray(complete_row)
        for _ in range(rng.choice((1, 1, 2, 5))):
            body[rng.randrange(len(body))] = rng.choice(
                (0, 1, 0x7F, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF, rng.randrange(256))
            )
        if rng.random() < 0.3:
            del body[rng.randrange(len(body)) :]
        code, _, _ = turned(packet(bytes(body)))
        assert code in (rows.MORE, rows.END, rows.REFUSED) or code in TEXTS, code
        refused += code in TEXTS
    assert refused > CASES // 3, refused
    print("all refused or turned")


def test_damaged_rows_are_refused_or_converted_within_bounds() -> None:
    """In plain Python, where each read and write is checked."""
    done = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True
    )
    assert done.stdout == "all refused or turned\n", done.stderr


if __name__ == "__main__":
    main()
