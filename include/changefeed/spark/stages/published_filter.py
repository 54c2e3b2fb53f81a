"""What of a new server's binlog is in Kafka already, after a failover: left out by its GTIDs, see `failover`."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.errors import AccountingError
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Failover, Mark, source_and_number
from changefeed.records.block import Message, MessageBlock
from changefeed.records.block_filter import without


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

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without what is published.

        Raises AccountingError for a message without a GTID: whether it was published is not known.
        """
        return without(block, lambda message: self._is_published(block, message))

    def _is_published(self, block: MessageBlock, message: Message) -> bool:
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
