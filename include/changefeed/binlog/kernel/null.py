"""Writes JSON's null."""

from __future__ import annotations

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, put32


@inline
def put_null(out: Bytes, at: int) -> int:
    """Write null; returns the new end."""
    put32(out, at, 0x6C6C756E)
    return at + 4
