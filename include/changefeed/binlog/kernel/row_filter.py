"""Row filters: a condition over the images of a row, worked out before any message is written of it.

A filter is a list of tests and connectives in postfix order. A test leaves FALSE, UNKNOWN or TRUE, as SQL has it, on a
stack; AND is then the least of two, OR the greatest.
"""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.compiled import inline
from changefeed.binlog.kernel.faults import FILTER_ABSENT
from changefeed.binlog.kernel.memory import little_endian, u8, wrap
from changefeed.binlog.kernel.workspace import Workspace

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
