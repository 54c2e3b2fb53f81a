"""An index of the records of a batch, which the kernel fills without an object for each record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from changefeed.native.memory import Bytes, Words
from changefeed.records import index_kernel as kernel
from changefeed.records.block import COMMIT_HEADER, FOREIGN_KEYS_HEADER, GTID_HEADER, ID_HEADER
from changefeed.records.compression import Data
from changefeed.records.record_batch import Record, record_in

_NAMES = [name.encode() for name in (ID_HEADER, GTID_HEADER, COMMIT_HEADER, FOREIGN_KEYS_HEADER)]
_TEXT = np.frombuffer(bytearray().join(_NAMES), np.uint8)
_ENDS = np.cumsum([len(name) for name in _NAMES]).astype(np.int64)


@dataclass(frozen=True)
class RecordIndex:
    """The records of a batch.

    ``words`` has a row for each record of ``data``, with the columns of `records.index_kernel`. ``first_offset`` is the
    batch's first offset.
    """

    data: Bytes
    words: Words
    first_offset: int = 0

    def __len__(self) -> int:
        return len(self.words)

    def record(self, number: int) -> Record:
        """A record. Its timestamp is the difference to the batch's first."""
        begin, end = self.words[number, [kernel.RECORD, kernel.RECORD_END]]
        return record_in(memoryview(self.data.data)[int(begin) : int(end)])

    def key(self, number: int) -> bytes | None:
        """The key of a record."""
        return self._part(number, kernel.KEY)

    def value(self, number: int) -> bytes | None:
        """The value of a record."""
        return self._part(number, kernel.VALUE)

    def event_id(self, number: int) -> bytes:
        """The value of the header `changefeed.id`; b"" without it."""
        return self._part(number, kernel.ID) or b""

    def gtid(self, number: int) -> bytes:
        """The value of the header `changefeed.gtid`; b"" without it."""
        return self._part(number, kernel.GTID_TEXT) or b""

    @cached_property
    def offsets(self) -> Words:
        """The offset of each record in its partition."""
        return self.words[:, kernel.OFFSET] + self.first_offset

    def between(self, first: int, end: int) -> RecordIndex:
        """The records with offsets in ``[first, end)``."""
        is_inside = (self.offsets >= first) & (self.offsets < end)
        return self if is_inside.all() else replace(self, words=np.ascontiguousarray(self.words[is_inside]))

    def column(self, word: int) -> Words:
        """One word of all records."""
        column: Words = self.words[:, word]
        return column

    def _part(self, number: int, word: int) -> bytes | None:
        start, end = self.words[number, word : word + 2]
        return None if start < 0 else self.data[start:end].tobytes()


def build_index(records: Data, count: int, server_uuid: str, first_offset: int = 0) -> RecordIndex:
    """The index of ``count`` uncompressed records. Order keys are known for changes of ``server_uuid`` only.

    Raises ValueError if the bytes are not ``count`` records.
    """
    data: Any = np.frombuffer(bytearray(records), np.uint8)
    words = np.empty(count * kernel.WORDS, np.int64)
    server = np.frombuffer(bytearray(server_uuid.encode()), np.uint8)
    failed = kernel.index_records(data, count, server, _TEXT, _ENDS, words)
    if failed < 0:
        raise ValueError(
            f"{len(data)} bytes are not {count} records of a batch: record {-1 - failed} is cut off, or has another "
            "length than it says"
        )
    return RecordIndex(data, words.reshape(count, kernel.WORDS), first_offset)
