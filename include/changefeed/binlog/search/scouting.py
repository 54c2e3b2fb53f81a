"""The scout's result for a file, and which files are worth cutting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from changefeed.model.statement import Statement
from changefeed.model.window import Slice

_PAYS_FROM = 1.5
"""A range is cut if its size is more than this many slices."""


@dataclass(frozen=True)
class Scouting:
    """The part of a window in one file: its slices, numbered from 0, and its statements except BEGIN and COMMIT."""

    slices: tuple[Slice, ...]
    statements: tuple[Statement, ...]
    events: int


def is_worth_cutting(size_bytes: int, slice_bytes: int) -> bool:
    """Whether a range of ``size_bytes`` is cut at all."""
    return size_bytes > _PAYS_FROM * slice_bytes


def number_slices(slices: Iterable[Slice]) -> list[Slice]:
    """The slices of several files, with numbers in binlog order."""
    return [replace(slice, number=number) for number, slice in enumerate(slices)]
