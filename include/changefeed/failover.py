"""After a failover: what of the new server's binlog is in Kafka already, told by GTIDs.

Coordinates of two servers have nothing in common, so what was published is told by transaction:

- a transaction in the checkpoint's GTID set was published, wherever it stands in the new binlog;
- an unfinished window of the old server gave each topic-partition the messages up to some transaction. The old server
  wrote them in the order of their GTID numbers, so those with lower numbers were given in full, and of the last one
  as many messages as its progress counts (`Mark`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from changefeed.block import Block, Message, pack
from changefeed.errors import AccountingError
from changefeed.gtid import GtidSet


@dataclass(frozen=True)
class Failover:
    """That a window was found again by GTID set on another server than its checkpoint's.

    ``window`` is the checkpoint's number and ``published`` its GTID set; ``from_uuid`` the old server.
    """

    from_uuid: str
    window: int
    published: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Mark:
    """How far an unfinished window of the old server gave a topic-partition: ``messages`` of transaction ``gtid``."""

    topic: str
    partition: int
    gtid: str
    messages: int


@lru_cache(maxsize=4096)
def source_and_number(gtid: str) -> tuple[str, int]:
    """("uuid", "uuid:tag" or MariaDB's domain, number) of one GTID."""
    (source, intervals), *_ = GtidSet.parse(gtid).intervals
    return source, intervals[-1][1]


@dataclass
class PublishedFilter:
    """Leaves out of blocks what is in Kafka already, and counts it in ``skipped`` by topic and partition."""

    failover: Failover
    marks: Iterable[Mark]
    skipped: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._published = GtidSet.parse(self.failover.published)
        self._marks = {(mark.topic, mark.partition): mark for mark in self.marks}
        self._left = {place: mark.messages for place, mark in self._marks.items()}
        self._known: dict[str, bool] = {}

    def rest(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """``blocks`` without what is published; each topic-partition's must come in binlog order.

        Raises AccountingError for a message without a GTID: whether it was published cannot be told.
        """
        for block in blocks:
            messages = list(block.messages())
            kept = [message for message in messages if not self._is_published(block, message)]
            place = (block.topic, block.partition)
            self.skipped[place] = self.skipped.get(place, 0) + len(messages) - len(kept)
            if len(kept) == len(messages):
                yield block
            elif kept:
                yield Block(block.topic, block.partition, block.file, block.slice, block.number, pack(kept))

    def _is_published(self, block: Block, message: Message) -> bool:
        gtid = message.gtid.decode("ascii", "replace")
        if not gtid:
            raise AccountingError(
                f"{block.file}:{message.position} holds a transaction without a GTID, and the window was found by GTID "
                "set after a failover: whether it was published already cannot be told. Nothing of it was published. "
                "Seek the pipeline to where it should resume."
            )
        if gtid not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[gtid] = self._published.contains(GtidSet.parse(gtid))
        if self._known[gtid]:
            return True
        place = (block.topic, block.partition)
        mark = self._marks.get(place)
        if mark is None:
            return False
        source, number = source_and_number(gtid)
        last_source, last = source_and_number(mark.gtid)
        if source != last_source or number > last:
            return False
        if number < last:
            return True
        self._left[place] -= 1
        return self._left[place] >= 0
