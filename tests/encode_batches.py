"""Encode blocks to finished batches, as the decode stage does."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.model.publish_settings import PublishSettings
from changefeed.records.batch import Batch
from changefeed.records.batch_limits import BatchLimits
from changefeed.records.block import Message, MessageBlock
from changefeed.records.encoder import BatchEncoder


def encoder(settings: PublishSettings | None = None, largest_bytes: int = 1_048_588) -> BatchEncoder:
    return BatchEncoder(settings or PublishSettings(), lambda _topic: BatchLimits(largest_bytes))


def encode_batches(
    blocks: Iterable[MessageBlock], settings: PublishSettings | None = None, largest_bytes: int = 1_048_588
) -> list[Batch]:
    """The batches of ``blocks``; a block's number is that of its first batch."""
    batch_encoder = encoder(settings, largest_bytes)
    return [batch for block in blocks for batch in batch_encoder.batches(block, block.number)]


def messages_of(batches: Iterable[Batch]) -> list[Message]:
    return [message for batch in batches for message in batch.block().messages()]
