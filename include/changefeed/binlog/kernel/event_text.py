"""Writes texts that are stored twice: in quotes, and then, for a binary notation, after their length."""

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
    """Write the text at ``texts[begin]``; returns the new end, or FULL.

    With ``counted`` the text for a binary notation, which is stored after the quoted text, is written instead. If there
    is no text, the literal of size ``length`` at ``absent`` is written. ``size_at`` is the state word with the size of
    the quoted text."""
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
