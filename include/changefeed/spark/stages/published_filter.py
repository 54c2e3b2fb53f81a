"""What of a new server's binlog is in Kafka already, after a failover: left out by its GTIDs, see `failover`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from changefeed.errors import AccountingError
from changefeed.model.binlog_order import BinlogOrder
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Failover, Mark
from changefeed.records.block import Message, MessageBlock
from changefeed.records.block_filter import without

_MOST_KNOWN = 100_000
"""Answers about so many GTIDs are remembered: a transaction has many messages."""


class PublishedFilter:
    """The `BlockFilter` that leaves out the transactions of the checkpoint that a failover goes on from."""

    reason = "failover"

    def __init__(self, failover: Failover) -> None:
        self._published = GtidSet.parse(failover.published)
        self._known: dict[bytes, bool] = {}

    def concerns(self, origin: str, first: int, last: int) -> bool:  # noqa: ARG002 - coordinates say nothing here
        """Any message may be published already, wherever it stands."""
        return True

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without what is published.

        Raises AccountingError for a message without a GTID: whether it was published is not known.
        """
        return without(block, lambda message: self._is_published(block, message))

    def _is_published(self, block: MessageBlock, message: Message) -> bool:
        if not message.gtid:
            raise AccountingError(
                f"{block.origin}:{message.position} holds a transaction without a GTID, and the window was found by "
                "GTID set after a failover: whether it was published already is not known. Nothing of the window was "
                "published. Seek the pipeline to where it should resume."
            )
        if message.gtid not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            gtid = GtidSet.parse(message.gtid.decode("ascii", "replace"))
            self._known[message.gtid] = self._published.contains(gtid)
        return self._known[message.gtid]


class GivenFilter:
    """The `BlockFilter` that leaves out what unfinished windows of the old server gave.

    ``marks`` say how far they gave each topic-partition, and ``orders`` has by window the old server's own order of
    transactions. It counts the messages of a transaction as the publisher counted them into ``marks``, so in a chain it
    is the last.
    """

    reason = "given_before_failover"

    def __init__(self, marks: Iterable[Mark], orders: Mapping[int, BinlogOrder]) -> None:
        self._marks = {(mark.topic, mark.partition): mark for mark in marks}
        self._orders = orders
        self._left = {partition: mark.messages for partition, mark in self._marks.items()}
        self._places: dict[tuple[int, bytes], int | None] = {}

    def concerns(self, origin: str, first: int, last: int) -> bool:  # noqa: ARG002 - coordinates say nothing here
        """Whether anything was given: then any message may be among it, wherever it stands."""
        return bool(self._marks)

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without what was given to its topic-partition."""
        mark = self._marks.get((block.topic, block.partition))
        return block if mark is None else without(block, lambda message: self._is_given(mark, message))

    def _is_given(self, mark: Mark, message: Message) -> bool:
        place, last = self._place(mark, message.gtid), self._place(mark, mark.gtid.encode())
        if place is None or last is None or place > last:
            return False
        if place < last:
            return True
        partition = (mark.topic, mark.partition)
        self._left[partition] -= 1
        return self._left[partition] >= 0

    def _place(self, mark: Mark, gtid: bytes) -> int | None:
        known = (mark.window, gtid)
        if known not in self._places:
            if len(self._places) >= _MOST_KNOWN:
                self._places.clear()
            self._places[known] = self._orders[mark.window].place(gtid.decode("ascii", "replace"))
        return self._places[known]
