"""Checks that each record is in its partition once, and in the order of the binlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from changefeed.records.event_id import EventId

MOST_LATE = 10_000
"""The maximum number of late records of a partition that are checked one by one."""


@dataclass
class RecordOrder:
    """Finds the late records of a partition. It takes the ids of the records in offset order.

    A record is late if its id does not come after all earlier ids of its stream: it is repeated or out of order. Rows
    of an XA transaction are not late: they have the earlier coordinates of XA PREPARE, but the new GTID of XA COMMIT.
    """

    late: list[tuple[bytes, int]] = field(default_factory=list)
    """Id and offset of the first MOST_LATE late records."""
    late_count: int = 0
    _last: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    _gtids: dict[bytes, int] = field(default_factory=dict)

    def take(self, event: EventId, text: bytes, gtid: bytes, offset: int) -> None:
        """Take the next record."""
        is_new = self._is_new(gtid)
        stream, order = event.stream, event.order
        if order > self._last.get(stream, (-1, 0, 0)):
            self._last[stream] = order
        elif not is_new:
            self.late_count += 1
            if len(self.late) < MOST_LATE:
                self.late.append((text, offset))

    def _is_new(self, gtid: bytes) -> bool:
        """Whether the number of the GTID is higher than all earlier numbers of its source."""
        source, _, number = gtid.rpartition(b":" if b":" in gtid else b"-")
        if not number.isdigit():
            return False
        if b":" not in gtid:
            source = source.partition(b"-")[0]  # a domain of MariaDB, whose servers share sequence numbers
        last = self._gtids.get(source, -1)
        self._gtids[source] = max(last, int(number))
        return int(number) > last


def find_repeated(late: Iterable[tuple[bytes, int]], ids: Iterable[bytes]) -> set[bytes]:
    """The ``late`` ids that occur more than once among all ``ids`` of their partition."""
    late_ids = {text for text, _ in late}
    counts = Counter(text for text in ids if text in late_ids)
    return {text for text, count in counts.items() if count > 1}
