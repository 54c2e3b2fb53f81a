"""The chain of a window's filters, which drops messages of finished batches and counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from changefeed.errors import AccountingError
from changefeed.records.batch import Batch
from changefeed.records.block import MessageBlock
from changefeed.records.block_filter import BlockFilter

if TYPE_CHECKING:
    from changefeed.records.encoder import BatchEncoder


class FilterChain:
    """Passes batches through ``filters`` in order, and counts the dropped messages itself.

    If a batch lost messages, ``encoder`` encodes the rest again. ``dropped`` has the number of dropped messages by
    (topic, partition) and by the filter's reason, without zeros.
    """

    def __init__(self, filters: Sequence[BlockFilter], encoder: BatchEncoder) -> None:
        self._filters, self._encoder = filters, encoder
        self.dropped: dict[tuple[str, int], Counter[str]] = {}

    def rest(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches without dropped messages. Raises AccountingError if a filter adds messages."""
        for batch in batches:
            first, last = batch.positions[0], batch.positions[-1]
            filters = [each for each in self._filters if each.concerns(batch.origin, first, last)]
            if not filters:
                yield batch
                continue
            block = batch.block()
            left = self._through(block, filters)
            if left is block:
                yield batch
            elif left is not None:
                yield from self._encoder.batches(left, batch.number)

    def _through(self, block: MessageBlock, filters: Iterable[BlockFilter]) -> MessageBlock | None:
        for block_filter in filters:
            left = block_filter.rest(block)
            self._count(block, block_filter.reason, block.message_count - (left.message_count if left else 0))
            if left is None:
                return None
            block = left
        return block

    def _count(self, block: MessageBlock, reason: str, messages: int) -> None:
        if messages < 0:
            raise AccountingError(
                f"filter {reason!r} made {-messages} messages more of a block for partition {block.partition} of "
                f"{block.topic!r}: filters leave out, they do not add. Nothing of the open transaction is visible."
            )
        if messages:
            self.dropped.setdefault((block.topic, block.partition), Counter())[reason] += messages
