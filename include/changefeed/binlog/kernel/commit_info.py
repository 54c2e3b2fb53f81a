"""The commit info of rows, which is known at the end of their transaction: its number in InnoDB, and the last row.

The kernel writes rows before it reads the end of the transaction, and notes where the info belongs. At the end of the
transaction it completes the notes. When messages are emitted, the info is inserted: see `binlog.commit_infos`.
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Ends, Words, copy
from changefeed.native.numbers import put_number
from changefeed.native.span import length

NO_XID = -1
MOST_BYTES, MOST_MESSAGES = 64 << 20, 1 << 18
"""The limits for the messages of a transaction from its first note to its end. Larger transactions get no info."""
LONGEST = 64
"""The most bytes that are inserted for a note."""
TEXTS: Bytes = np.frombuffer(b',"xid":,"xoffset":,"commit":true', np.uint8).copy()
_XID, _OFFSET, _COMMIT = (0, 7), (7, 11), (18, 14)
"""Offset and size of each text in TEXTS."""


@inline
def leave_room(work: Workspace, at: int, offsets: int) -> None:
    """Note that the commit info of the current message belongs at ``at``.

    Does nothing if there is no room for notes.
    """
    state, infos = work.state, work.commit_infos
    info = state[layout.COMMIT_INFOS] * layout.COMMIT_INFO
    if info + layout.COMMIT_INFO > length(infos):
        return
    infos[info + layout.INFO_AT] = at
    infos[info + layout.INFO_MESSAGE] = state[layout.MESSAGES]
    infos[info + layout.INFO_OFFSETS] = offsets
    infos[info + layout.INFO_ROW] = layout.UNSAID
    state[layout.COMMIT_INFOS] += 1


@inline
def complete_notes(work: Workspace, xid: int) -> None:
    """Complete the notes of the transaction that ends here; ``xid`` is NO_XID if it ends with a COMMIT statement."""
    state, infos = work.state, work.commit_infos
    first, last = state[layout.RESOLVED], state[layout.COMMIT_INFOS]
    if first == last:
        return
    begin = first * layout.COMMIT_INFO
    size = state[layout.OUT] - infos[begin + layout.INFO_AT]
    messages = state[layout.MESSAGES] - infos[begin + layout.INFO_MESSAGE]
    if state[layout.IN_PARTS] == 1 or size > MOST_BYTES or messages > MOST_MESSAGES:
        return
    for number in range(first, last):
        info = number * layout.COMMIT_INFO
        infos[info + layout.INFO_XID] = xid
        infos[info + layout.INFO_ROW] = number - first if number < last - 1 else layout.LAST_ROW


@entry("int64(int64, int64, uint8[::1], uint32[::1], int64[::1], uint8[::1], uint8[::1], uint32[::1])")
def fill(
    messages: int, notes: int, data: Bytes, ends: Ends, infos: Words, texts: Bytes, filled: Bytes, filled_ends: Ends
) -> int:
    """Copy ``messages`` to ``filled``, and insert the first ``notes`` of ``infos``; returns the size of the copy.

    ``filled`` must have room for LONGEST more bytes for each note; ``texts`` is TEXTS.
    """
    done = at = note = 0
    for message in range(messages):
        for part in range(4):
            end = int(np.int64(ends[4 * message + part]))
            while note < notes and infos[note * layout.COMMIT_INFO + layout.INFO_AT] < end:
                info = note * layout.COMMIT_INFO
                here = int(infos[info + layout.INFO_AT])
                copy(filled, at, data, done, here - done)
                at += here - done
                done = here
                row = infos[info + layout.INFO_ROW]
                if row != layout.UNSAID:
                    xid = infos[info + layout.INFO_XID]
                    if xid != NO_XID:
                        copy(filled, at, texts, _XID[0], _XID[1])
                        at = put_number(filled, at + _XID[1], xid)
                    if row == layout.LAST_ROW:
                        copy(filled, at, texts, _COMMIT[0], _COMMIT[1])
                        at += _COMMIT[1]
                    elif infos[info + layout.INFO_OFFSETS] == 1:
                        copy(filled, at, texts, _OFFSET[0], _OFFSET[1])
                        at = put_number(filled, at + _OFFSET[1], row)
                note += 1
            copy(filled, at, data, done, end - done)
            at += end - done
            done = end
            filled_ends[4 * message + part] = at
    return at
