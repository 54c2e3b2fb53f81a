"""Texts that stand twice: in quotes, and behind that counted, as a binary notation has them."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import STEP, Bytes, copy, copy_short


@inline
def put_text(
    work: Workspace, at: int, room: int, texts: Bytes, begin: int, size_at: int, counted: bool, absent: int, length: int
) -> int:
    """Write the text at ``texts[begin]``, or the counted one behind it; where there is none, the literal ``absent`` of
    ``length``. ``size_at`` is where the state has the first one's size. The new end, or FULL."""
    state = work.state
    size = state[size_at]
    if size == 0:
        if at + length + STEP > room:
            return FULL
        copy_short(work.out, at, work.literals, absent, length)
        return at + length
    if counted:
        begin += size
        size = state[size_at + layout.COUNTED]
    if at + size > room:
        return FULL
    copy(work.out, at, texts, begin, size)
    return at + int(size)
