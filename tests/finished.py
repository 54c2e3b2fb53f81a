"""Blocks as the finished batches that publishing gets."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.model.publish_settings import PublishSettings
from changefeed.records.batch import Batch
from changefeed.records.batch_limits import BatchLimits
from changefeed.records.block import Message, MessageBlock
from changefeed.records.encoder import BatchEncoder


def encoder(settings: PublishSettings | None = None, largest_bytes: int = 1_048_588) -> BatchEncoder:
    return BatchEncoder(settings or PublishSettings(), lambda _topic: BatchLimits(largest_bytes))


def finished(
    blocks: Iterable[MessageBlock], settings: PublishSettings | None = None, largest_bytes: int = 1_048_588
) -> list[Batch]:
    """The batches of ``blocks``; a block's number is that of its first batch."""
    made = encoder(settings, largest_bytes)
    return [batch for block in blocks for batch in made.batches(block, block.number)]


def messages_of(batches: Iterable[Batch]) -> list[Message]:
    return [message for batch in batches for message in batch.block().messages()]
