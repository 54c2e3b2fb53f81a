"""Texts of JSON with a byte changed: what kernels that look for something in them are fed."""

from __future__ import annotations

import random
from typing import Any

import orjson

ROW = b'{"id":7,"name":"a\\"\\\\\\u00e9\xc3\xa9\xf0\x9f\x98\x80","price":-1.5e-3,"is":true,"no":false,"gone":null}'


def mutations(text: bytes, count: int, seed: int) -> list[bytes]:
    """The text with a byte changed, left out or put in."""
    chance, made = random.Random(seed), []
    for _ in range(count):
        at, byte = chance.randrange(len(text)), chance.choice([*text, *b'{}[]",:\\ \n\0\x80\xff0'])
        made.append(text[:at] + chance.choice([b"", bytes([byte])]) + text[at + chance.randrange(2) :])
    return made


def loads(text: bytes) -> Any:
    """What orjson reads; None where it reads nothing."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None
