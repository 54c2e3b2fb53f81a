"""Sequence numbers of messages in a pipeline with functions: row, part (the number of a change of the row) and step."""

# kernels read this file
from __future__ import annotations

from changefeed.native.memory import Words

PART_BITS = 16
"""Bits of the part, the number of a change among the changes that functions made from one row."""
STEP_BITS = 2


def make_room_for_parts(sequences: Words) -> None:
    """Convert sequence numbers of row and step, in place, to sequence numbers of row, part 0 and step."""
    sequences[:] = (sequences >> STEP_BITS << PART_BITS + STEP_BITS) | (sequences & (1 << STEP_BITS) - 1)
