"""What a part of a binlog holds by table, without decoding a row: for the plan of a backfill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from changefeed.binlog.events.framing import HEADER_SIZE, EventType, Fields
from changefeed.binlog.kernel import hop, layout
from changefeed.binlog.kernel.memory import Bytes, Words
from changefeed.binlog.kernel.row_counts import row_counts
from changefeed.binlog.kernel.table_index import TableIndex
from changefeed.binlog.search.event_walk import EventWalk
from changefeed.window import Slice

_WORDS = 2


@dataclass
class TableCounts:
    """Events that carry rows, and their bytes. How many rows are in them only decoding tells."""

    row_events: int = 0
    size_bytes: int = 0


def count_rows(chunks: Iterable[bytes], counts: dict[str, TableCounts], piece: Slice) -> None:
    """Add the row events of ``chunks``, those of ``piece``, to ``counts``, by "database.table".

    Raises BinlogFormatError, with coordinates, for bytes that cannot be followed.
    """
    counter = _Counter(piece)
    for _ in counter.walk.read(chunks, counter.go_on):
        pass
    counter.add_to(counts)


class _Counter:
    def __init__(self, piece: Slice) -> None:
        self.walk = EventWalk(piece)
        self._tables: Words = np.zeros(layout.STATE_WORDS, np.int64)
        self._index = TableIndex(self._tables)
        self._bodies: Bytes = np.zeros(1 << 14, np.uint8)
        self._bodies_end = 0
        self._known: dict[bytes, int] = {}
        self._names: dict[str, int] = {}
        self._counts: Words = np.zeros(_WORDS * 64, np.int64)

    def go_on(self) -> int:
        walk = self.walk
        while True:
            code = walk.run(
                lambda: row_counts(
                    walk.source.data,
                    walk.state,
                    walk.checksum_size,
                    self._tables,
                    self._index.words,
                    self._bodies,
                    self._counts,
                )
            )
            if code != hop.LOOK:
                return code
            event = walk.event()
            if event is not None:
                if event[4] == EventType.TABLE_MAP:
                    self._add_table(event[HEADER_SIZE : len(event) - walk.checksum_size])
                walk.pass_over(event)

    def _add_table(self, body: bytes) -> None:
        """After the table id: flags (2), then database and table: a length byte, the name, a null byte."""
        fields = Fields(body)
        table_id = fields.number(6)
        fields.take(2)
        database = fields.take(fields.number(1)).decode("utf-8", "replace")
        fields.take(1)
        name = f"{database}.{fields.take(fields.number(1)).decode('utf-8', 'replace')}"
        at = self._names.setdefault(name, _WORDS * len(self._names))
        if at == len(self._counts):
            self._counts = np.append(self._counts, np.zeros_like(self._counts))
        self._index.put(table_id, at, self._address(body[6:]), len(body) - 6)

    def _address(self, body: bytes) -> int:
        """Where the kernel finds the bytes of a TABLE_MAP behind its table id, which are kept once."""
        if body not in self._known:
            at, end = self._bodies_end, self._bodies_end + len(body)
            if end > len(self._bodies):
                self._bodies = np.append(self._bodies, np.zeros(end, np.uint8))
            self._bodies[at:end] = np.frombuffer(body, np.uint8)
            self._known[body], self._bodies_end = at, end
        return self._known[body]

    def add_to(self, counts: dict[str, TableCounts]) -> None:
        for name, at in self._names.items():
            row_events, size_bytes = self._counts[at : at + _WORDS].tolist()
            if row_events:
                count = counts.setdefault(name, TableCounts())
                count.row_events += row_events
                count.size_bytes += size_bytes
