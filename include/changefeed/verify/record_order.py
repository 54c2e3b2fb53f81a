"""Whether the records of a partition stand in it once each, and in the order of the binlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from changefeed.records.event_id import EventId

MOST_LATE = 10_000
"""So many records out of order of a partition are looked at each by itself."""


@dataclass
class RecordOrder:
    """Fed the ids of a partition's records, in its order; knows those that came too late.

    A record whose id is not behind all earlier ones of its stream is late: it stands there twice, or out of order. Rows
    of an XA transaction have the coordinates of XA PREPARE, and come when it is committed: told by their GTID, which is
    a new one.
    """

    late: list[tuple[bytes, int]] = field(default_factory=list)
    """Id and offset of the first MOST_LATE."""
    late_count: int = 0
    _last: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    _gtids: dict[bytes, int] = field(default_factory=dict)

    def take(self, event: EventId, text: bytes, gtid: bytes, offset: int) -> None:
        """The next record."""
        is_new = self._is_new(gtid)
        stream, order = event.stream, event.order
        if order > self._last.get(stream, (-1, 0, 0)):
            self._last[stream] = order
        elif not is_new:
            self.late_count += 1
            if len(self.late) < MOST_LATE:
                self.late.append((text, offset))

    def _is_new(self, gtid: bytes) -> bool:
        """Whether the GTID has a higher number than all of its source before it."""
        source, _, number = gtid.rpartition(b":" if b":" in gtid else b"-")
        if not number.isdigit():
            return False
        if b":" not in gtid:
            source = source.partition(b"-")[0]  # MariaDB's domain, whose numbers are of all its servers
        last = self._gtids.get(source, -1)
        self._gtids[source] = max(last, int(number))
        return int(number) > last


def repeated(late: Iterable[tuple[bytes, int]], ids: Iterable[bytes]) -> set[bytes]:
    """Those of the ``late`` ids that stand more than once among all ``ids`` of their partition."""
    wanted = {text for text, _ in late}
    counts = Counter(text for text in ids if text in wanted)
    return {text for text, count in counts.items() if count > 1}
