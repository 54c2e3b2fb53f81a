"""Records read from Kafka while the follower still writes those before them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from changefeed.kafka.progress import TopicPartition
from changefeed.replicate.block import SourceBlock
from changefeed.replicate.stream import SourceBlocks

_PARTS = 2
_TICK_SECONDS = 0.2


@dataclass(frozen=True)
class Part:
    """A block, and from which offset of each partition on no record was handed out before it."""

    block: SourceBlock
    offsets: Mapping[TopicPartition, int]


@contextmanager
def read_ahead(blocks: SourceBlocks) -> Iterator[Iterator[Part]]:
    """The ``blocks`` in parts, read by a thread that is _PARTS ahead at most; it is gone at the block's end.

    The iterator raises what reading raises.
    """
    parts: queue.Queue[Part | BaseException | None] = queue.Queue(_PARTS)
    ended = threading.Event()

    def put(item: Part | BaseException | None) -> None:
        while not ended.is_set():
            try:
                parts.put(item, timeout=_TICK_SECONDS)
            except queue.Full:
                continue
            return

    def read() -> None:
        try:
            for part in _parts(blocks):
                put(part)
                if ended.is_set():
                    return
            put(None)
        except BaseException as error:  # it is the reader's to raise, whatever it is
            put(error)

    def taken() -> Iterator[Part]:
        while (item := parts.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=read, name="read ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        ended.set()
        thread.join()


def _parts(blocks: SourceBlocks) -> Iterator[Part]:
    offsets = dict(blocks.offsets)
    for block in blocks:
        yield Part(block, offsets)
        offsets = dict(blocks.offsets)
