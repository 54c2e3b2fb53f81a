"""Sorts a batch of messages by group, so that each group's part is contiguous."""

from __future__ import annotations

import numpy as np

from changefeed.native.compiled import entry
from changefeed.native.memory import Bytes, Ends, Words, copy


@entry(
    "void(int64, uint8[::1], int64[::1], int64[::1], int64[::1], uint32[::1], uint32[::1], uint8[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1], uint32[::1], uint32[::1], uint8[::1])"
)
def scatter(
    count: int,
    data: Bytes,
    positions: Words,
    sequences: Words,
    groups: Words,
    ends: Ends,
    seconds: Ends,
    nulls: Bytes,
    firsts: Words,
    begins: Words,
    next_message: Words,
    next_byte: Words,
    sorted_data: Bytes,
    sorted_positions: Words,
    sorted_sequences: Words,
    sorted_ends: Ends,
    sorted_seconds: Ends,
    sorted_nulls: Bytes,
) -> None:
    """Sort ``count`` messages by group; within a group they stay in order.

    - ``firsts`` and ``begins`` get the number of the first message and the offset of the first byte of each group. They
      have one item more than there are groups, and must be zeros before.
    - ``sorted_ends`` count from the first byte of the group.
    - ``next_message`` and ``next_byte`` are scratch arrays with one item more than there are groups.
    """
    number_of_groups = firsts.shape[0] - 1
    begin = 0
    for index in range(count):
        end = int(np.int64(ends[4 * index + 3]))
        firsts[groups[index] + 1] += 1
        begins[groups[index] + 1] += end - begin
        begin = end
    for group in range(number_of_groups):
        firsts[group + 1] += firsts[group]
        begins[group + 1] += begins[group]
    for group in range(number_of_groups + 1):
        next_message[group] = firsts[group]
        next_byte[group] = begins[group]
    begin = 0
    for index in range(count):
        group = groups[index]
        end = int(np.int64(ends[4 * index + 3]))
        to = next_message[group]
        at = next_byte[group]
        copy(sorted_data, at, data, begin, end - begin)
        sorted_positions[to] = positions[index]
        sorted_sequences[to] = sequences[index]
        sorted_seconds[to] = seconds[index]
        sorted_nulls[to] = nulls[index]
        base = at - begins[group]
        for part in range(4):
            sorted_ends[4 * to + part] = int(np.int64(ends[4 * index + part])) - begin + base
        next_message[group] = to + 1
        next_byte[group] = at + end - begin
        begin = end
