"""Compares byte strings."""

from __future__ import annotations

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, u8


@inline
def is_same(data: Bytes, start: int, end: int, other: Bytes, first: int, last: int) -> bool:
    """Whether ``data[start:end]`` and ``other[first:last]`` are the same bytes."""
    if end - start != last - first:
        return False
    for index in range(end - start):  # noqa: SIM110 - numba knows no generators
        if u8(data, start + index) != u8(other, first + index):
            return False
    return True
