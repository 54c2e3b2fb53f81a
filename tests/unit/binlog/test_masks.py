"""Hashes of masks as the kernel writes them, against Python's own."""

from __future__ import annotations

import hashlib
import hmac
import json

import numba
import numpy as np
import orjson
import pytest

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.masks import put_masked
from changefeed.binlog.programs.codecs import BoundColumn, Spec
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.programs.specs import masked_spec
from changefeed.formats.notation import JSON
from changefeed.model.column_rules import HmacSha256, Sha256, Treatment

put = numba.njit(
    lambda out, end, room, words, mask, literals, scratch: put_masked(out, 3, end, room, words, mask, literals, scratch)
)
TEXTS = [
    "",
    'q"uo\\te\n\t\x01',
    *("x" * size for size in (1, 54, 55, 56, 63, 64, 65, 119, 120, 128, 1000)),
    "Zoë 😀" * 9,
]
KEYS = ["", "k", "päper", "k" * 63, "k" * 64, "k" * 65, "k" * 200]


def written(treatment: Treatment, text: str, room: int) -> bytes | None:
    """The masked ``text`` in a buffer of ``room`` bytes; None if it does not fit."""
    memory, column = ProgramMemory(), BoundColumn("c", 15, 0, False, "utf8mb4", None, "")
    _, mask = masked_spec(Spec(0, 1, layout.UTF8, 0, 0, 0, 0), column, treatment, memory, JSON, "")
    value, out = orjson.dumps(text), np.zeros(room + 64, np.uint8)
    out[3 : 3 + len(value)] = np.frombuffer(value, np.uint8)
    scratch = np.zeros(layout.SCRATCH_WORDS, np.int64)
    address = memory.place_words(mask)
    end = put(out, 3 + len(value), room, memory.words, address, memory.bytes, scratch)
    assert not out[room:].any(), "nothing is written beyond the room"
    return None if end == FULL else out[3:end].tobytes()


@pytest.mark.parametrize("key", KEYS)
def test_hashes_are_those_of_pythons_own_library(key: str) -> None:
    for text in TEXTS:
        plain = hashlib.sha256((key + text).encode()).hexdigest()
        keyed = hmac.new(key.encode(), text.encode(), "sha256").hexdigest()
        assert json.loads(written(Sha256(key), text, 4096) or b"") == plain
        assert json.loads(written(HmacSha256(key), text, 4096) or b"") == keyed


def test_a_hash_takes_no_more_room_than_there_is() -> None:
    for room in range(6, 400):
        for treatment in (Sha256("salt"), HmacSha256("key")):
            digest = written(treatment, "x", room)
            assert digest is None or len(digest) == 66
    assert digest is not None
