"""What leaves messages out of a window between decoding and publishing.

A window's filters stand in a chain (`records.filter_chain`; `spark.stages.publish_task` names them). Each message
that was decoded is published, was there already, became a dead letter, or was dropped by a filter that is named in the
window's manifest: `commit` adds them up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from changefeed.records.block import Message, MessageBlock, pack


class BlockFilter(Protocol):
    """Leaves messages out of blocks.

    A task has a filter of its own, and gives it the messages of each of its topic-partitions in binlog order. A window
    that is tried again brings the same messages, and for the same messages a filter has to give the same answers: the
    publisher drops what an earlier attempt published by counting on from the last message of it.
    """

    @property
    def reason(self) -> str:
        """The name under which a manifest counts what this filter dropped; stored, so it never changes."""
        ...

    def concerns(self, origin: str, first: int, last: int) -> bool:
        """Whether a message may be dropped that stands in ``origin`` from position ``first`` to ``last``.

        A batch that concerns no filter is published as it is, and nobody looks into it.
        """
        ...

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without what is dropped, the rest unchanged and in order; None where nothing is left.

        May raise a ChangefeedError, which ends the run with nothing of the open transaction visible.
        """
        ...


def without(block: MessageBlock, dropped: Callable[[Message], bool]) -> MessageBlock | None:
    """``block`` without the messages for which ``dropped`` says so; the block itself where it says it of none."""
    messages = list(block.messages())
    kept = [message for message in messages if not dropped(message)]
    if len(kept) == len(messages):
        return block
    return replace(block, payload=pack(kept)) if kept else None
