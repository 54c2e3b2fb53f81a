"""What only the end of a transaction says of its rows, put into their messages when that is known.

The kernel leaves note of where it belongs (`kernel.commit_info`). Messages of a transaction whose end was not read stay
in the buffer, which grows with them; of one that is larger than `MOST_BYTES` nothing is said.
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.commit_info import LONGEST, MOST_BYTES, MOST_MESSAGES, TEXTS, fill
from changefeed.binlog.output import Output
from changefeed.native.memory import Words

_SLACK = 64
"""Bytes that the kernel may write behind a number's last digit."""


class CommitInfos:
    """The notes of the messages in a buffer; how many there are stands in the kernel's ``state``.

    ``words`` are `layout.COMMIT_INFO` for each; none for formats that say nothing of a transaction's end.
    """

    def __init__(self, state: Words) -> None:
        self.words: Words = np.zeros(0, np.int64)
        self._state = state

    def make_room(self, messages: int) -> None:
        """Have room for the notes of so many messages."""
        wanted = layout.COMMIT_INFO * (messages + 1)
        if len(self.words) < wanted:
            grown = np.zeros(wanted, np.int64)
            grown[: len(self.words)] = self.words
            self.words = grown

    def ready(self, messages: int) -> int:
        """How many of the first ``messages`` wait for no end of a transaction."""
        settled, noted = int(self._state[layout.SETTLED]), int(self._state[layout.COMMIT_INFOS])
        if settled == noted or self._state[layout.IN_PARTS]:
            return messages
        return int(self.words[settled * layout.COMMIT_INFO + layout.INFO_MESSAGE])

    def widen(self, messages: int, output: Output) -> bool:
        """Make room behind the first ``messages`` of ``output``, which wait; False where nothing is said of so many."""
        return output.widen(messages, MOST_MESSAGES, MOST_BYTES)

    def give_up(self) -> None:
        """Messages are handed over now: if their transaction has not ended, nothing is said of its end."""
        if self._state[layout.SETTLED] < self._state[layout.COMMIT_INFOS]:
            self._state[layout.IN_PARTS] = 1

    def filled(self, messages: int, output: Output) -> Output:
        """The first ``messages`` of ``output`` with all that is said of their transactions."""
        notes = self._of(messages)
        if notes == 0:
            return output
        size, ends = int(output.ends[4 * messages - 1]), np.empty(4 * messages, np.uint32)
        data = np.empty(size + LONGEST * notes + _SLACK, np.uint8)
        end = fill(messages, notes, output.data, output.ends, self.words, TEXTS, data, ends)
        return output.rewritten(data[:end], ends)

    def handed_over(self, messages: int, size: int) -> None:
        """The first ``messages``, which took ``size`` bytes, are not in the buffer any more."""
        notes, left = self._of(messages), int(self._state[layout.COMMIT_INFOS])
        rest = self.words[layout.COMMIT_INFO * notes : layout.COMMIT_INFO * left].reshape(-1, layout.COMMIT_INFO).copy()
        rest[:, layout.INFO_AT] -= size
        rest[:, layout.INFO_MESSAGE] -= messages
        self.words[: rest.size] = rest.ravel()
        self._state[layout.COMMIT_INFOS] = left - notes
        self._state[layout.SETTLED] = max(0, int(self._state[layout.SETTLED]) - notes)

    def taken_back(self, messages: int) -> None:
        """Only the first ``messages`` are in the buffer any more."""
        notes = self._of(messages)
        self._state[layout.COMMIT_INFOS] = notes
        self._state[layout.SETTLED] = min(int(self._state[layout.SETTLED]), notes)

    def _of(self, messages: int) -> int:
        """How many notes are of the first ``messages``."""
        noted = layout.COMMIT_INFO * int(self._state[layout.COMMIT_INFOS])
        numbers = self.words[layout.INFO_MESSAGE : noted : layout.COMMIT_INFO]
        return int(np.searchsorted(numbers, messages))
