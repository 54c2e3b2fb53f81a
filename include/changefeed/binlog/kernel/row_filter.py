"""Row filters: a condition over the images of a row, evaluated before the row's messages are written.

A filter is a list of tests, AND, OR and NOT in postfix order. As in SQL, a test is FALSE, UNKNOWN or TRUE. Results are
on a stack; AND is the least of the last two results, OR the greatest.
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
def passes_filter(work: Workspace, program: int, op: int) -> int:
    """1 if the filter at ``words[program]`` is true for the row whose images are in ``scratch``, else 0; or a fault.

    If a change with ``op`` does not have an image, each column of this image is NULL.
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
            value = _test(work, at, code, op)
            if value < 0:
                return value
            top += 1
            scratch[top] = value
        at += layout.FILTER
    return 1 if scratch[layout.STACK] == _TRUE else 0


@inline
def op_on_current_rows(work: Workspace, current: int, op: int) -> int:
    """The op by which the change in ``scratch`` changes the current rows of its table; NO_VALUE for none, or a fault.

    ``current`` is the address of the table's filter."""
    before = 0 if op == layout.CREATE or op == layout.READ else passes_filter(work, current, layout.DELETE)
    after = 0 if op == layout.DELETE else passes_filter(work, current, layout.CREATE)
    if before < 0 or after < 0:
        return before if before < 0 else after
    if after == 0:
        return layout.DELETE if before == 1 else layout.NO_VALUE
    return layout.CREATE if op == layout.UPDATE and before == 0 else op


@inline
def _test(work: Workspace, at: int, code: int, op: int) -> int:
    """The result of the test at ``words[at]`` for the row: FALSE, UNKNOWN, TRUE, or a fault."""
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
        expected = words[at + 5]
        shorter = min(size, expected)
        index = 0
        while index < shorter and order == 0:
            order = u8(data, start + index) - u8(work.literals, constant + index)
            index += 1
        if order == 0:
            order = size - expected
    bit = layout.LESS if order < 0 else (layout.EQUAL if order == 0 else layout.GREATER)
    return _TRUE if relation & bit else _FALSE


@inline
def _is_like(work: Workspace, start: int, size: int, utf8: int, pattern: int, length: int) -> bool:
    """Whether the value matches the pattern at ``words[pattern]``.

    After an ANY the shortest match is tried first, then longer matches. Only the last ANY needs backtracking, because
    it can match all characters that a longer match of an earlier ANY would include.
    """
    data, words = work.data, work.words
    at = index = 0
    any_at, any_index = -1, 0
    while at < size:
        expected = words[pattern + index] if index < length else layout.ANY - 1
        if expected == layout.ANY:
            any_at, any_index = at, index
            index += 1
        elif expected == layout.ANY_ONE:
            at += _character(u8(data, start + at), utf8)
            index += 1
        elif expected == u8(data, start + at):
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
    """The size of a character that begins with the byte ``first``."""
    if utf8 == 0 or first < 0xC0:
        return 1
    return 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
