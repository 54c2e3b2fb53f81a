"""The memory for all row programs of a decoder: an array of words and an array of bytes, which the kernel reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from changefeed.binlog.events import charsets
from changefeed.formats.notation import json_string
from changefeed.native.memory import STEP, Bytes, Words


class ProgramMemory:
    """Two arrays to which words and bytes can be appended.

    An address in the arrays stays valid, but the arrays are replaced when they grow.
    """

    def __init__(self) -> None:
        self.words: Words = np.zeros(4096, np.int64)
        self.bytes: Bytes = np.zeros(65536, np.uint8)
        self.has_commit_infos = False
        """Whether messages of a table have a commit info."""
        self._words_used = 0
        self._bytes_used = 0
        self._literals: dict[bytes, int] = {}
        self._tables: dict[str, int] = {}
        self._labels: dict[tuple[tuple[str, ...], bool], int] = {}

    def place_words(self, values: Sequence[int]) -> int:
        """Append words; returns their address."""
        at = self._words_used
        end = at + len(values)
        if end > len(self.words):
            grown = np.zeros(max(2 * len(self.words), end), np.int64)
            grown[:at] = self.words[:at]
            self.words = grown
        self.words[at:end] = values
        self._words_used = end
        return at

    def place_bytes(self, data: bytes) -> int:
        """Append bytes, unless the same bytes are there already; returns their address."""
        known = self._literals.get(data)
        if known is not None:
            return known
        at = self._bytes_used
        end = at + len(data)
        if end + STEP > len(self.bytes):
            grown = np.zeros(max(2 * len(self.bytes), end + STEP), np.uint8)
            grown[:at] = self.bytes[:at]
            self.bytes = grown
        self.bytes[at:end] = np.frombuffer(data, np.uint8)
        self._bytes_used = end
        self._literals[data] = at
        return at

    def labels(self, labels: tuple[str, ...], *, plain: bool = False) -> int:
        """Append ENUM or SET labels; returns the address of two words for each label: address and size.

        The labels are escaped as inside JSON strings, unless they are ``plain``."""
        known = self._labels.get((labels, plain))
        if known is None:
            words: list[int] = []
            for label in labels:
                text = label.encode("utf-8", "replace") if plain else json_string(label)[1:-1]
                words += (self.place_bytes(text), len(text))
            known = self._labels[labels, plain] = self.place_words(words)
        return known

    def code_table(self, charset: str) -> int:
        """Append a charset's table of code points; returns its address."""
        known = self._tables.get(charset)
        if known is None:
            known = self._tables[charset] = self.place_words(charsets.code_table(charset))
        return known
