"""After a failover: what of the new server's binlog is in Kafka already, by its GTIDs.

Coordinates of two servers have nothing in common, so what was published is known by transaction:

- a transaction in the checkpoint's GTID set was published, wherever it stands in the new binlog;
- an unfinished window of the old server gave each topic-partition the messages up to some transaction. The old server
  wrote them in the order of their GTID numbers, so those with lower numbers were given in full, and of the last of them
  as many messages as its progress counts (`Mark`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from changefeed.block import Block, Message
from changefeed.block_filter import without
from changefeed.errors import AccountingError
from changefeed.gtid import GtidSet


@dataclass(frozen=True)
class Failover:
    """That a window's start was looked up by GTID set on another server than its checkpoint's.

    ``window`` is the checkpoint's number and ``published`` its GTID set; ``from_uuid`` the old server, and ``at`` the
    checkpoint's coordinates there, '' in windows that older versions froze.
    """

    from_uuid: str
    window: int
    published: str
    at: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, part of the window's."""
        return {name: value for name, value in asdict(self).items() if name != "at" or value}


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


class PublishedFilter:
    """The `BlockFilter` that leaves out what is in Kafka already.

    It counts the messages of a transaction as the publisher counted them into ``marks``, so in a chain it is the last.
    """

    reason = "failover"

    def __init__(self, failover: Failover, marks: Iterable[Mark]) -> None:
        self._published = GtidSet.parse(failover.published)
        self._marks = {(mark.topic, mark.partition): mark for mark in marks}
        self._left = {partition: mark.messages for partition, mark in self._marks.items()}
        self._known: dict[str, bool] = {}

    def concerns(self, origin: str, first: int, last: int) -> bool:  # noqa: ARG002 - coordinates say nothing here
        """Any message may be published already, wherever it stands."""
        return True

    def rest(self, block: Block) -> Block | None:
        """``block`` without what is published.

        Raises AccountingError for a message without a GTID: whether it was published is not known.
        """
        return without(block, lambda message: self._is_published(block, message))

    def _is_published(self, block: Block, message: Message) -> bool:
        gtid = message.gtid.decode("ascii", "replace")
        if not gtid:
            raise AccountingError(
                f"{block.origin}:{message.position} holds a transaction without a GTID, and the window was found by "
                "GTID set after a failover: whether it was published already is not known. Nothing of it was "
                "published. Seek the pipeline to where it should resume."
            )
        if gtid not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[gtid] = self._published.contains(GtidSet.parse(gtid))
        if self._known[gtid]:
            return True
        partition = (block.topic, block.partition)
        mark = self._marks.get(partition)
        if mark is None:
            return False
        source, number = source_and_number(gtid)
        last_source, last = source_and_number(mark.gtid)
        if source != last_source or number > last:
            return False
        if number < last:
            return True
        self._left[partition] -= 1
        return self._left[partition] >= 0
