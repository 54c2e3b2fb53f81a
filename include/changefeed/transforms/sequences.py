"""Sequences of messages in a pipeline with functions: between row and step they say which of several changes it is."""

# kernels read this file
from __future__ import annotations

from changefeed.native.memory import Words

PART_BITS = 16
"""Of a sequence, between row and step: which of the changes that a function made of one."""
STEP_BITS = 2


def make_room_for_parts(sequences: Words) -> None:
    """Turn sequences of row and step into those of row, part 0 and step, in place."""
    sequences[:] = (sequences >> STEP_BITS << PART_BITS + STEP_BITS) | (sequences & (1 << STEP_BITS) - 1)
