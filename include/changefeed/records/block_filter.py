"""The interface of filters, which drop messages of a window between decoding and publishing.

The filters of a window form a chain (`records.filter_chain`), which `spark.stages.publish_task` sets up. Each decoded
message is published now, was published before, became a dead letter, or was dropped by a filter. `commit` adds up these
counts; the window's manifest has the names of the filters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from changefeed.records.block import Message, MessageBlock, pack


class BlockFilter(Protocol):
    """A filter that drops messages of blocks.

    Each task has its own filter and calls it with the messages of each topic-partition in binlog order. At a retry of
    the window, a filter must return the same result for the same messages, because the publisher skips published
    messages by their position and count.
    """

    @property
    def reason(self) -> str:
        """The name under which a manifest counts the dropped messages. It is stored, so it must never change."""
        ...

    def concerns(self, origin: str, first: int, last: int) -> bool:
        """Whether the filter may drop a message of ``origin`` from position ``first`` to ``last``.

        If no filter may drop a message of a batch, the batch is published without being decoded.
        """
        ...

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without the dropped messages, the others unchanged and in order; None if no message is left.

        If it raises a ChangefeedError, the run ends, and no message of the open transaction becomes visible.
        """
        ...


def without(block: MessageBlock, dropped: Callable[[Message], bool]) -> MessageBlock | None:
    """``block`` without the messages for which ``dropped`` is true; ``block`` itself if there are none."""
    messages = list(block.messages())
    kept = [message for message in messages if not dropped(message)]
    if len(kept) == len(messages):
        return block
    return replace(block, payload=pack(kept)) if kept else None
