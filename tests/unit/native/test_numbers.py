"""Numbers, text and hashes as the kernel writes them, against trusted libraries."""

from __future__ import annotations

import random
import struct
import zlib

import numba
import numpy as np
import orjson

from changefeed.binlog.kernel.text import put_utf8
from changefeed.native.crc32 import crc32
from changefeed.native.murmur2 import murmur2
from changefeed.native.numbers import put_float32, put_float64, put_signed, put_unsigned
from changefeed.records.partition import murmur2 as plain_murmur2

# Functions of kernels can be called by compiled code only.
double = numba.njit(lambda out, bits: put_float64(out, 0, bits))
single = numba.njit(lambda out, bits: put_float32(out, 0, bits))
signed = numba.njit(lambda out, word: put_signed(out, 0, word))
unsigned = numba.njit(lambda out, word: put_unsigned(out, 0, word))
text = numba.njit(lambda out, data, level: put_utf8(out, 0, len(out), data, 0, len(data), level))
hashed = numba.njit(lambda data: murmur2(data, 0, len(data)))
summed = numba.njit(lambda data: crc32(data, 0, len(data)))

OUT = np.zeros(1 << 16, np.uint8)


def shown(end: int) -> bytes:
    return OUT[:end].tobytes()


def test_doubles_have_the_shortest_form_of_orjson() -> None:
    rng = random.Random(4)
    numbers = [2.0**power for power in range(-1074, 1024)] + [0.0, -0.0, 1e16, 123456789012345680.0, 5e-324, 1e22, 1e23]
    numbers += [round(rng.uniform(-1e6, 1e6), rng.randrange(7)) for _ in range(20_000)]
    numbers += struct.unpack("<60000d", rng.randbytes(480_000))
    for number in numbers:
        if number - number == 0:
            (bits,) = struct.unpack("<q", struct.pack("<d", number))
            assert shown(double(OUT, bits)) == orjson.dumps(number)


def test_singles_read_back_as_themselves_and_no_shorter_text_does() -> None:
    rng = random.Random(5)
    for _ in range(20_000):
        bits = rng.getrandbits(32)
        number = np.uint32(bits).view(np.float32)
        if np.isfinite(number):
            spelled = shown(single(OUT, bits))
            assert np.float32(spelled.decode()) == number
            assert float(spelled) == float(orjson.dumps(number, option=orjson.OPT_SERIALIZE_NUMPY))


def test_integers_keep_all_64_bits() -> None:
    rng = random.Random(6)
    words = [0, 1, -1, 9, 10, 99, 100, 2**63 - 1, -(2**63)]
    words += [rng.randrange(-(2**63), 2**63) >> rng.randrange(63) for _ in range(5000)]
    for word in words:
        assert shown(signed(OUT, word)) == b"%d" % word
        assert shown(unsigned(OUT, word)) == b"%d" % (word % 2**64)


def test_text_is_escaped_as_json_once_or_twice() -> None:
    rng = random.Random(7)
    alphabet = 'ab "\\\n\x00\x1f/\x7fé€漢😀\u2028'
    for _ in range(3000):
        plain = "".join(rng.choice(alphabet) for _ in range(rng.randrange(40)))
        data = np.frombuffer(plain.encode() or b"\0", np.uint8)[: len(plain.encode())].copy()
        once = orjson.dumps(plain)
        assert shown(text(OUT, data, 1)) == once[1:-1]
        assert shown(text(OUT, data, 2)) == orjson.dumps(once[1:-1].decode())[1:-1]


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    for broken, expected in {
        b"a\xff\xfeb": "a\ufffd\ufffdb",
        b"\xc0\x80": "\ufffd\ufffd",
        b"\xed\xa0\x80": "\ufffd\ufffd\ufffd",
        b"\xf4\x90\x80\x80": "\ufffd" * 4,
        b"\xe6\x97": "\ufffd\ufffd",
    }.items():
        assert shown(text(OUT, np.frombuffer(broken, np.uint8).copy(), 1)).decode() == expected


def test_hashes_are_kafkas_and_zlibs() -> None:
    rng = random.Random(8)
    for size in [*range(40), 1000, 4099]:
        data = rng.randbytes(size)
        array = np.frombuffer(data + b"\0", np.uint8)[:size].copy()
        assert hashed(array) == plain_murmur2(data)
        assert summed(array) == zlib.crc32(data)
