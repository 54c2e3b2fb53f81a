"""Writes the columns of a row image as a row: the values, and the notation's text around them."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import FULL, MISSING_COLUMN, NULL_COLUMN, NULL_VALUE
from changefeed.binlog.kernel.images import differs
from changefeed.binlog.kernel.masks import put_masked, put_sized_string
from changefeed.binlog.kernel.null import put_null
from changefeed.binlog.kernel.values import put_value
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import STEP, Bytes, Words, copy_short, u8
from changefeed.native.span import length

_ROOM = 256


@inline
def put_literal(out: Bytes, at: int, room: int, words: Words, pair: int, literals: Bytes) -> int:
    """Write the literal whose address and size are at ``words[pair]``; the new end, or FULL."""
    size = int(words[pair + 1])
    if at + size + STEP > room:
        return FULL
    copy_short(out, at, literals, words[pair], size)
    return at + size


@inline
def put_row(work: Workspace, at: int, image: int, columns: int) -> int:
    """Write the columns of an image that are listed at ``words[columns]``; returns the new end, FULL or a fault."""
    out, words, scratch = work.out, work.words, work.scratch
    room = length(out)
    skip = words[columns + 1]  # the separator is omitted before the first column that is written
    specs = words[columns + 2]
    for index in range(words[columns]):
        column = words[columns + layout.LIST + index]
        start = scratch[image + column]
        spec = specs + column * layout.SPEC
        if start >= 0:
            size = words[spec + layout.SPEC_VALUE + 1] - skip
            if at + size + _ROOM > room:
                return FULL
            copy_short(out, at, work.literals, words[spec + layout.SPEC_VALUE] + skip, size)
            value = at + size
            end = put_value(work, value, room, start, scratch[image + layout.MAX_COLUMNS + column], spec)
            steps = words[spec + layout.SPEC_STEPS]
            if steps >= 0:
                if words[steps] != layout.MASK_NONE:
                    if end == NULL_VALUE:  # a mask needs a text: here null
                        end = put_null(out, value)
                    if end >= 0:
                        end = put_masked(out, value, end, room, words, steps, work.literals, scratch)
                    if end >= 0 and words[steps + layout.STEPS_SIZED] > 0:
                        end = put_sized_string(out, value, end, room)
                if end >= 0:
                    end = put_literal(out, end, room, words, steps + layout.STEPS_LITERAL, work.literals)
            if end >= 0:
                at = end
                skip = 0
                continue
            if end != NULL_VALUE:
                return end
            start = layout.NULL
        literal = spec + layout.SPEC_MISSING
        if start == layout.NULL:
            literal = spec + layout.SPEC_NULL
        size = words[literal + 1]
        if size < 0:
            return NULL_COLUMN if start == layout.NULL else MISSING_COLUMN
        if size > 0:
            size -= skip
            if at + size + _ROOM > room:
                return FULL
            copy_short(out, at, work.literals, words[literal] + skip, size)
            at += size
            skip = 0
    return at


@inline
def put_changed(work: Workspace, at: int, literals: int, columns: int) -> int:
    """Write a row with the before image's columns that changed; the parameters of OP_CHANGED begin at ``literals``."""
    out, words, scratch = work.out, work.words, work.scratch
    room = length(out)
    count = 0
    for index in range(words[columns]):
        column = words[columns + layout.LIST + index]
        if scratch[column] != layout.ABSENT and differs(work.data, scratch, column):
            scratch[layout.CHANGED_IMAGE + column] = scratch[column]
            scratch[layout.CHANGED_IMAGE + layout.MAX_COLUMNS + column] = scratch[layout.MAX_COLUMNS + column]
            count += 1
        else:
            scratch[layout.CHANGED_IMAGE + column] = layout.ABSENT
    if count == 0:
        return put_literal(out, at, room, words, literals + 4, work.literals)
    at = put_literal(out, at, room, words, literals, work.literals)
    if at < 0:
        return at
    at = put_row(work, at, layout.CHANGED_IMAGE, columns)
    if at < 0:
        return at
    return put_literal(out, at, room, words, literals + 2, work.literals)


@inline
def is_unchanged(work: Workspace, columns: int) -> int:
    """1 if both images have the same text in the columns listed at ``words[columns]``; 0, or a fault."""
    out = work.out
    begin = int(work.state[layout.OUT])  # free space after the messages
    middle = put_row(work, begin, 0, columns)
    if middle < 0:
        return middle
    end = put_row(work, middle, layout.IMAGE, columns)
    if end < 0:
        return end
    size = middle - begin
    if end - middle != size:
        return 0
    for byte in range(size):
        if u8(out, begin + byte) != u8(out, middle + byte):
            return 0
    return 1
