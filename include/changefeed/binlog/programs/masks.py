"""Masks of columns: what a column rule makes of a value, as words of the row program.

A constant replaces the value as a kind of its own, and the value is never written. The other two masks are
steps of the kernel: `kernel.masks`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.sha256 import BLOCK
from changefeed.binlog.programs.codecs import BoundColumn, Spec
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.errors import SettingsError
from changefeed.formats.notation import Notation
from changefeed.pipelines.column_rules import Constant, Excluded, FirstCharacters, HmacSha256, Sha256, Treatment

_TEXTS = frozenset({layout.UTF8, layout.CODE_TABLE, layout.UTF16, layout.UTF32, layout.ENUM, layout.SET})


Mask = tuple[int, int, int, int]
"""A mask's kind and parameters, as `kernel.masks` reads them."""
NO_MASK: Mask = (layout.MASK_NONE, 0, 0, 0)


def masked(
    spec: Spec,
    column: BoundColumn,
    treatment: Treatment | None,
    memory: ProgramMemory,
    notation: Notation,
    where: str,
) -> tuple[Spec, Mask]:
    """The spec of a column under its treatment, and its mask.

    Raises SettingsError, which begins with ``where``, for a column that is no text and is to be cut.
    """
    match treatment:
        case Constant(text):
            literal = notation.text(text) if text is not None else b""  # null has no value: see `ProgramBuilder`
            place = memory.place_bytes(literal)
            return replace(spec, kind=layout.CONSTANT, a=place, b=len(literal), c=0, d=0), NO_MASK
        case FirstCharacters(count):
            if spec.kind not in _TEXTS:
                raise SettingsError(
                    f"{where}.{column.name} is no text, so columns.mask cannot keep its first {count} characters: mask "
                    "it with `text` or a hash, or leave it out"
                )
            return spec, (layout.MASK_FIRST, count, 0, 0)
        case Sha256(salt):
            data = salt.encode()
            return spec, (layout.MASK_SHA256, memory.place_bytes(data), len(data), 0)
        case HmacSha256(key):
            inner, outer = _key_blocks(key.encode())
            return spec, (layout.MASK_HMAC_SHA256, memory.place_bytes(inner), len(inner), memory.place_bytes(outer))
        case Excluded() | None:
            return spec, NO_MASK


def _key_blocks(key: bytes) -> tuple[bytes, bytes]:
    """What HMAC hashes before the text, and before that digest: the key in a block, under two paddings (RFC 2104)."""
    block = (hashlib.sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    return bytes(byte ^ 0x36 for byte in block), bytes(byte ^ 0x5C for byte in block)
