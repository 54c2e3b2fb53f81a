"""What leaves messages out of blocks between decoding and publishing, and the account of it.

A window's filters stand in a chain (`spark.publish.filters_of` makes it). Each message that was decoded is published,
was there already, became a dead letter, or was dropped by a filter that is named in the window's manifest: `commit`
adds them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from changefeed.block import Block, Message, pack
from changefeed.errors import AccountingError


class BlockFilter(Protocol):
    """Leaves messages out of blocks.

    A task has a filter of its own, and gives it each of its topic-partitions' blocks in binlog order. A window that
    is tried again brings the same blocks, and for the same blocks a filter has to give the same answers: the
    publisher drops what an earlier attempt published by counting on from the last message of it.
    """

    @property
    def reason(self) -> str:
        """The name under which a manifest counts what this filter dropped; stored, so it never changes."""
        ...

    def rest(self, block: Block) -> Block | None:
        """``block`` without what is dropped, the rest unchanged and in order; None where nothing is left.

        May raise a ChangefeedError, which ends the run with nothing of the open transaction visible.
        """
        ...


def without(block: Block, dropped: Callable[[Message], bool]) -> Block | None:
    """``block`` without the messages for which ``dropped`` says so; the block itself where it says it of none."""
    messages = list(block.messages())
    kept = [message for message in messages if not dropped(message)]
    if len(kept) == len(messages):
        return block
    return replace(block, payload=pack(kept)) if kept else None


class FilterChain:
    """Blocks through ``filters``, one after the other; it counts what each drops, so that no filter can miscount.

    ``dropped`` has the number of messages by (topic, partition), and by filter's reason; without zeros.
    """

    def __init__(self, filters: Sequence[BlockFilter]) -> None:
        self._filters = filters
        self.dropped: dict[tuple[str, int], Counter[str]] = {}

    def rest(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """What is left of ``blocks``. Raises AccountingError for a filter that adds messages."""
        if not self._filters:
            yield from blocks
            return
        for block in blocks:
            left = self._through(block)
            if left is not None:
                yield left

    def _through(self, block: Block) -> Block | None:
        for block_filter in self._filters:
            left = block_filter.rest(block)
            self._count(block, block_filter.reason, block.message_count - (left.message_count if left else 0))
            if left is None:
                return None
            block = left
        return block

    def _count(self, block: Block, reason: str, messages: int) -> None:
        if messages < 0:
            raise AccountingError(
                f"filter {reason!r} made {-messages} messages more of a block for partition {block.partition} of "
                f"{block.topic!r}: filters leave out, they do not add. Nothing of the open transaction is visible."
            )
        if messages:
            self.dropped.setdefault((block.topic, block.partition), Counter())[reason] += messages
