"""Inserts the commit info of a transaction, which is known at its end, into the messages of its rows.

The kernel notes where a message needs it (`kernel.commit_info`). Messages of an unfinished transaction stay in the
buffer, which grows up to `MOST_BYTES`; messages of a larger transaction get no commit info.
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.commit_info import LONGEST, MOST_BYTES, MOST_MESSAGES, TEXTS, fill
from changefeed.binlog.output import Output
from changefeed.native.memory import Words

_SLACK = 64
"""The most bytes that the kernel overwrites after the last digit of a number."""


class CommitInfos:
    """The notes of the messages in a buffer; the kernel's ``state`` has their number.

    ``words`` has `layout.COMMIT_INFO` words for each note; it is empty for formats without commit info.
    """

    def __init__(self, state: Words) -> None:
        self.words: Words = np.zeros(0, np.int64)
        self._state = state

    def make_room(self, messages: int) -> None:
        """Allocate room for the notes of ``messages`` messages."""
        size = layout.COMMIT_INFO * (messages + 1)
        if len(self.words) < size:
            grown = np.zeros(size, np.int64)
            grown[: len(self.words)] = self.words
            self.words = grown

    def ready(self, messages: int) -> int:
        """The number of messages, among the first ``messages``, that do not wait for the end of their transaction."""
        resolved, noted = int(self._state[layout.RESOLVED]), int(self._state[layout.COMMIT_INFOS])
        if resolved == noted or self._state[layout.IN_PARTS]:
            return messages
        return int(self.words[resolved * layout.COMMIT_INFO + layout.INFO_MESSAGE])

    def widen(self, messages: int, output: Output) -> bool:
        """Make room after the first ``messages`` of ``output``, which wait; False if too many messages wait."""
        return output.widen(messages, MOST_MESSAGES, MOST_BYTES)

    def give_up(self) -> None:
        """Note that messages are emitted before their transaction ends: its rows get no commit info."""
        if self._state[layout.RESOLVED] < self._state[layout.COMMIT_INFOS]:
            self._state[layout.IN_PARTS] = 1

    def complete_output(self, messages: int, output: Output) -> Output:
        """An output with the first ``messages`` of ``output`` and their commit infos."""
        notes = self._of(messages)
        if notes == 0:
            return output
        size, ends = int(output.ends[4 * messages - 1]), np.empty(4 * messages, np.uint32)
        data = np.empty(size + LONGEST * notes + _SLACK, np.uint8)
        end = fill(messages, notes, output.data, output.ends, self.words, TEXTS, data, ends)
        return output.with_bytes(data[:end], ends)

    def remove_first(self, messages: int, size: int) -> None:
        """Remove the notes of the first ``messages``, which had ``size`` bytes."""
        notes, left = self._of(messages), int(self._state[layout.COMMIT_INFOS])
        rest = self.words[layout.COMMIT_INFO * notes : layout.COMMIT_INFO * left].reshape(-1, layout.COMMIT_INFO).copy()
        rest[:, layout.INFO_AT] -= size
        rest[:, layout.INFO_MESSAGE] -= messages
        self.words[: rest.size] = rest.ravel()
        self._state[layout.COMMIT_INFOS] = left - notes
        self._state[layout.RESOLVED] = max(0, int(self._state[layout.RESOLVED]) - notes)

    def keep_first(self, messages: int) -> None:
        """Remove the notes of all messages after the first ``messages``."""
        notes = self._of(messages)
        self._state[layout.COMMIT_INFOS] = notes
        self._state[layout.RESOLVED] = min(int(self._state[layout.RESOLVED]), notes)

    def _of(self, messages: int) -> int:
        """The number of notes of the first ``messages``."""
        noted = layout.COMMIT_INFO * int(self._state[layout.COMMIT_INFOS])
        numbers = self.words[layout.INFO_MESSAGE : noted : layout.COMMIT_INFO]
        return int(np.searchsorted(numbers, messages))
