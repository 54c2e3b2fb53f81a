"""Filters that leave out, by GTID, the messages of a new server that were published before a failover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from changefeed.errors import AccountingError
from changefeed.model.binlog_order import BinlogOrder
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Failover, HighWaterMark
from changefeed.records.block import Message, MessageBlock
from changefeed.records.block_filter import without

_MOST_KNOWN = 100_000
"""The size of the caches of GTIDs; a transaction has many messages."""


class PublishedFilter:
    """The `BlockFilter` that leaves out the transactions before the checkpoint from which a failover continues."""

    reason = "failover"

    def __init__(self, failover: Failover) -> None:
        self._published = GtidSet.parse(failover.published)
        self._known: dict[bytes, bool] = {}

    def concerns(self, origin: str, first: int, last: int) -> bool:  # noqa: ARG002 - coordinates do not matter
        """True: a message at any position may be published already."""
        return True

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without the published messages.

        Raises AccountingError for a message without a GTID, because it is not known whether it was published.
        """
        return without(block, lambda message: self._is_published(block, message))

    def _is_published(self, block: MessageBlock, message: Message) -> bool:
        if not message.gtid:
            raise AccountingError(
                f"expected a GTID for the transaction at {block.origin}:{message.position}, found none: after a "
                "failover it is then not known whether the transaction was published already. Nothing of the window "
                "was published. Seek the pipeline to where it should resume."
            )
        if message.gtid not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            gtid = GtidSet.parse(message.gtid.decode("ascii", "replace"))
            self._known[message.gtid] = self._published.contains(gtid)
        return self._known[message.gtid]


class PartlyPublishedFilter:
    """The `BlockFilter` that leaves out the messages that unfinished windows of the old server published.

    ``high_water_marks`` has the last transaction that they published to each topic-partition. ``orders`` has the old
    server's order of transactions for each window. The filter counts the messages of a transaction as the publisher
    counted them into the high-water mark, so it must be the last of a chain.
    """

    reason = "given_before_failover"

    def __init__(self, high_water_marks: Iterable[HighWaterMark], orders: Mapping[int, BinlogOrder]) -> None:
        self._high_water_marks = {(each.topic, each.partition): each for each in high_water_marks}
        self._orders = orders
        self._left_messages = {
            partition: high_water_mark.messages for partition, high_water_mark in self._high_water_marks.items()
        }
        self._places: dict[tuple[int, bytes], int | None] = {}

    def concerns(self, origin: str, first: int, last: int) -> bool:  # noqa: ARG002 - coordinates do not matter
        """Whether an unfinished window of the old server published messages; then a message at any position may be
        published already."""
        return bool(self._high_water_marks)

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without the messages that the old server published to its topic-partition."""
        high_water_mark = self._high_water_marks.get((block.topic, block.partition))
        return (
            block
            if high_water_mark is None
            else without(block, lambda message: self._is_published(high_water_mark, message))
        )

    def _is_published(self, high_water_mark: HighWaterMark, message: Message) -> bool:
        place, last = (
            self._place(high_water_mark, message.gtid),
            self._place(high_water_mark, high_water_mark.gtid.encode()),
        )
        if place is None or last is None or place > last:
            return False
        if place < last:
            return True
        partition = (high_water_mark.topic, high_water_mark.partition)
        self._left_messages[partition] -= 1
        return self._left_messages[partition] >= 0

    def _place(self, high_water_mark: HighWaterMark, gtid: bytes) -> int | None:
        known = (high_water_mark.window, gtid)
        if known not in self._places:
            if len(self._places) >= _MOST_KNOWN:
                self._places.clear()
            self._places[known] = self._orders[high_water_mark.window].place(gtid.decode("ascii", "replace"))
        return self._places[known]
