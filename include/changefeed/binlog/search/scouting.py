"""What the scout makes of a file, and which files it is asked about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from changefeed.model.statement import Statement
from changefeed.model.window import Slice

_PAYS_FROM = 1.5
"""How many slices large a piece must be for cutting it to pay."""


@dataclass(frozen=True)
class Scouting:
    """A file's part of a window, cut: its slices, numbered from 0, and the statements in it that are no framing."""

    slices: tuple[Slice, ...]
    statements: tuple[Statement, ...]
    events: int


def is_worth_cutting(size_bytes: int, slice_bytes: int) -> bool:
    """Whether a piece of that size is cut at all."""
    return size_bytes > _PAYS_FROM * slice_bytes


def numbered(slices: Iterable[Slice]) -> list[Slice]:
    """Slices of several files, numbered through in binlog order."""
    return [replace(piece, number=number) for number, piece in enumerate(slices)]
