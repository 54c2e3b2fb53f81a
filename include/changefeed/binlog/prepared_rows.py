"""Rows of prepared XA transactions, held back until their XA COMMIT is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from changefeed.block import Block, Message, Step, number_of, pack, sequence_of
from changefeed.settlement import XaCommit
from changefeed.transaction_event import PreparedTransaction, TransactionEvent

HELD_BYTES = 64 << 20
"""What all that are held at once may take; the rows of others are read again."""

TopicPartition = tuple[str, int]


Sequence = Counter[TopicPartition]
"""How many messages of an XA COMMIT each topic-partition was given."""


def at_commit(
    messages: Iterable[tuple[TopicPartition, Message]], position: int, gtid: str, given: Sequence | None = None
) -> dict[TopicPartition, list[Message]]:
    """``messages`` of a prepared transaction as they are published at its XA COMMIT; ``given`` goes on counting.

    Progress is ordered by position, so they have the XA COMMIT's; and its GTID, as it is with that transaction that
    the source, and a server after a failover, has the rows. Their ids and values still say where the rows stand.
    """
    given = Counter() if given is None else given
    moved: dict[TopicPartition, list[Message]] = {}
    for where, message in messages:
        sequence = sequence_of(given[where], Step.CHANGE)
        given[where] += 1
        moved.setdefault(where, []).append(replace(message, position=position, sequence=sequence, gtid=gtid.encode()))
    return moved


def replayed(commit: XaCommit, prepared: PreparedTransaction, blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks of ``commit``, of those that were read again where its rows were prepared.

    Their numbers sort them in among those of the slice that has the XA COMMIT.
    """
    given: Sequence = Counter()
    ordinal = 0
    for block in blocks:
        where = (block.topic, block.partition)
        messages = [(where, message) for message in block.messages() if prepared.holds(message.position)]
        for moved in at_commit(messages, commit.position, commit.gtid, given).values():
            number = number_of(commit.position, ordinal)
            yield Block(block.topic, block.partition, commit.file, commit.slice, number, pack(moved))
            ordinal += 1


class PreparedRows:
    """The transactions that a slice has prepared and not ended, with their messages."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[TransactionEvent, list[tuple[TopicPartition, Message]]]] = {}
        self._size_bytes = 0

    def hold(self, prepared: TransactionEvent, messages: list[tuple[TopicPartition, Message]]) -> bool:
        """Hold ``messages`` but for those that were rolled back; False where there is no room for them."""
        messages = [(where, message) for where, message in messages if prepared.has(message.position)]
        size_bytes = _size_of(messages)
        if self._size_bytes + size_bytes > HELD_BYTES:
            return False
        self._size_bytes += size_bytes
        self._held[prepared.name] = prepared, messages
        return True

    def take(self, xid: str) -> list[tuple[TopicPartition, Message]] | None:
        """The messages of a transaction, which are held no longer; None where it is not held."""
        if xid not in self._held:
            return None
        _, messages = self._held.pop(xid)
        self._size_bytes -= _size_of(messages)
        return messages

    def left(self) -> Iterator[TransactionEvent]:
        """The transactions that are still held."""
        for prepared, _ in self._held.values():
            yield prepared


def _size_of(messages: list[tuple[TopicPartition, Message]]) -> int:
    return sum(500 + len(message.key or b"") + len(message.value or b"") for _, message in messages)
