"""The records of a finished batch, as the kernel finds them: which changes they are, without an object each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from changefeed.batches.compression import Data
from changefeed.batches.record_batch import Record, record_in
from changefeed.binlog.kernel import record_index as kernel
from changefeed.binlog.kernel.memory import Bytes, Words
from changefeed.block import COMMIT_HEADER, GTID_HEADER, ID_HEADER

_NAMES = [name.encode() for name in (ID_HEADER, GTID_HEADER, COMMIT_HEADER)]
_TEXT = np.frombuffer(bytearray().join(_NAMES), np.uint8)
_ENDS = np.cumsum([len(name) for name in _NAMES]).astype(np.int64)


@dataclass(frozen=True)
class RecordIndex:
    """``words`` has a row for each record of ``data``, with the columns of `binlog.kernel.record_index`."""

    data: Bytes
    words: Words

    def record(self, number: int) -> Record:
        """The record itself; its timestamp is the difference to the batch's first."""
        begin, end = self.words[number, [kernel.RECORD, kernel.RECORD_END]]
        return record_in(memoryview(self.data.data)[int(begin) : int(end)])


def indexed(records: Data, count: int, server_uuid: str) -> RecordIndex:
    """Index ``count`` records, not compressed, whose turns are read where they are of ``server_uuid``.

    Raises ValueError for bytes that are no such records.
    """
    data: Any = np.frombuffer(bytearray(records), np.uint8)
    words = np.zeros(count * kernel.WORDS, np.int64)
    server = np.frombuffer(bytearray(server_uuid.encode()), np.uint8)
    end = kernel.index_records(data, count, server, _TEXT, _ENDS, words)
    if end != len(data):
        raise ValueError(f"{len(data)} bytes are not {count} records of a batch")
    return RecordIndex(data, words.reshape(count, kernel.WORDS))
