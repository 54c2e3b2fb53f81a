"""Row filters: a condition over the images of a row, worked out before any message is written of it.

A filter is a list of tests and connectives in postfix order. A test leaves FALSE, UNKNOWN or TRUE, as SQL has it, on a
stack; AND is then the least of two, OR the greatest.
"""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import FILTER_ABSENT
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import little_endian, u8, wrap

_FALSE, _UNKNOWN, _TRUE = 0, 1, 2
_SIGN = -(1 << 63)


@inline
def passes(work: Workspace, program: int, op: int) -> int:
    """1 where the filter at ``words[program]`` is true for the row whose images are in ``scratch``, 0 where it is not,
    or a fault.

    An image that ``op`` does not have is NULL in each column.
    """
    words, scratch = work.words, work.scratch
    at = program + 1
    top = layout.STACK - 1
    for _ in range(words[program]):
        code = words[at]
        if code == layout.FILTER_NOT:
            scratch[top] = _TRUE - scratch[top]
        elif code == layout.FILTER_AND or code == layout.FILTER_OR:
            first, second = scratch[top - 1], scratch[top]
            top -= 1
            scratch[top] = min(first, second) if code == layout.FILTER_AND else max(first, second)
        else:
            value = _tested(work, at, code, op)
            if value < 0:
                return value
            top += 1
            scratch[top] = value
        at += layout.FILTER
    return 1 if scratch[layout.STACK] == _TRUE else 0


@inline
def op_on_current_rows(work: Workspace, current: int, op: int) -> int:
    """What the change whose images are in ``scratch`` is to the current rows of its table: an op, NO_VALUE for nothing,
    or a fault; ``current`` is the address of the table's filter."""
    before = 0 if op == layout.CREATE or op == layout.READ else passes(work, current, layout.DELETE)
    after = 0 if op == layout.DELETE else passes(work, current, layout.CREATE)
    if before < 0 or after < 0:
        return before if before < 0 else after
    if after == 0:
        return layout.DELETE if before == 1 else layout.NO_VALUE
    return layout.CREATE if op == layout.UPDATE and before == 0 else op


@inline
def _tested(work: Workspace, at: int, code: int, op: int) -> int:
    """What the test at ``words[at]`` says of the row: FALSE, UNKNOWN, TRUE, or a fault."""
    data, words, scratch = work.data, work.words, work.scratch
    image = words[at + 1]
    if image == layout.ROW_IMAGE:
        image = 0 if op == layout.DELETE else layout.IMAGE
    column = words[at + 2]
    there = op != layout.DELETE if image == layout.IMAGE else (op == layout.UPDATE or op == layout.DELETE)
    start = scratch[image + column] if there else layout.NULL
    if start == layout.ABSENT:
        return FILTER_ABSENT
    if code == layout.FILTER_NULL:
        return _TRUE if start == layout.NULL else _FALSE
    if start == layout.NULL:
        return _UNKNOWN
    size = scratch[image + layout.MAX_COLUMNS + column]
    relation, constant, flip = words[at + 3], words[at + 4], words[at + 5]
    if code == layout.FILTER_LIKE:
        return _TRUE if _is_like(work, start, size, relation, constant, flip) else _FALSE
    order = 0
    if code == layout.FILTER_NUMBER:
        value = little_endian(data, start, size)
        if flip == 0:
            unused = 64 - 8 * size
            value = wrap(value << unused) >> unused
        elif size == 8:
            value = wrap(value ^ _SIGN)
        order = (1 if value > constant else 0) - (1 if value < constant else 0)
    else:
        wanted = words[at + 5]
        shorter = min(size, wanted)
        index = 0
        while index < shorter and order == 0:
            order = u8(data, start + index) - u8(work.literals, constant + index)
            index += 1
        if order == 0:
            order = size - wanted
    bit = layout.LESS if order < 0 else (layout.EQUAL if order == 0 else layout.GREATER)
    return _TRUE if relation & bit else _FALSE


@inline
def _is_like(work: Workspace, start: int, size: int, utf8: int, pattern: int, length: int) -> bool:
    """Whether the value is like the pattern at ``words[pattern]``.

    Behind an ANY the shortest run that lets the rest match is tried first, then longer ones: only the last ANY needs
    that, as what an earlier one took can be made up for by the later.
    """
    data, words = work.data, work.words
    at = index = 0
    any_at, any_index = -1, 0
    while at < size:
        wanted = words[pattern + index] if index < length else layout.ANY - 1
        if wanted == layout.ANY:
            any_at, any_index = at, index
            index += 1
        elif wanted == layout.ANY_ONE:
            at += _character(u8(data, start + at), utf8)
            index += 1
        elif wanted == u8(data, start + at):
            at += 1
            index += 1
        elif any_at >= 0:
            any_at += _character(u8(data, start + any_at), utf8)
            at, index = any_at, any_index + 1
        else:
            return False
    while index < length and words[pattern + index] == layout.ANY:
        index += 1
    return index == length and at == size


@inline
def _character(first: int, utf8: int) -> int:
    """The bytes of a character that begins with the byte ``first``."""
    if utf8 == 0 or first < 0xC0:
        return 1
    return 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
