"""One finished record batch with its accounts: what decoding hands to publishing, through Spark."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import lz4.block

from changefeed.records.block import GTID_HEADER, Message, MessageBlock, pack
from changefeed.records.record_batch import records_of

_HEAD = struct.Struct("<IIIIIQ")


@dataclass(frozen=True)
class Batch:
    """Messages of one topic-partition out of one slice or chunk, in its order, as a batch that Kafka stores as it is.

    ``origin``, ``slice`` and ``number`` are as a block's. What publishing counts stands beside the ``records``, so that
    nobody needs to look into them: ``messages``, the bytes of their values, those of the largest record, and how many
    messages at the end have the last one's ``gtid``. ``coordinates`` has where each message stands, compressed.
    """

    topic: str
    partition: int
    origin: str
    slice: int
    number: int
    messages: int
    value_bytes: int
    largest_bytes: int
    gtid: bytes
    gtid_messages: int
    coordinates: bytes
    records: bytes

    @cached_property
    def positions(self) -> memoryview:
        """Of each message, the position of its event in ``origin``; unsigned, 8 bytes each."""
        return self._places[: self.messages]

    @cached_property
    def sequences(self) -> memoryview:
        """Of each message, its row within the event << 2 | step; unsigned, 8 bytes each."""
        return self._places[self.messages :]

    @cached_property
    def _places(self) -> memoryview:
        return memoryview(lz4.block.decompress(self.coordinates)).cast("Q")

    def block(self) -> MessageBlock:
        """The messages as a block: for what is rare, as each becomes an object."""
        return MessageBlock(self.topic, self.partition, self.origin, self.slice, self.number, pack(self._messages()))

    def _messages(self) -> Iterator[Message]:
        for record, position, sequence in zip(records_of(self.records), self.positions, self.sequences, strict=True):
            (_, event_id), *more = record.headers
            gtid = more.pop(0)[1] if more and more[0][0] == GTID_HEADER else b""
            seconds = record.timestamp_ms // 1000
            yield Message(position, sequence, record.key, record.value, event_id, gtid, tuple(more), seconds)

    def payload(self) -> bytes:
        """All that is not a column of the rows that Spark moves, as one binary value."""
        head = _HEAD.pack(
            self.messages, self.largest_bytes, self.gtid_messages, len(self.gtid), len(self.coordinates),
            self.value_bytes,
        )  # fmt: skip
        return b"".join((head, self.gtid, self.coordinates, self.records))

    @classmethod
    def of(cls, topic: str, partition: int, origin: str, slice: int, number: int, payload: bytes) -> Batch:
        """The batch whose `payload` is ``payload``."""
        messages, largest_bytes, gtid_messages, gtid_size, coordinates_size, value_bytes = _HEAD.unpack_from(payload)
        gtid = payload[_HEAD.size : (at := _HEAD.size + gtid_size)]
        coordinates = payload[at : (at := at + coordinates_size)]
        return cls(
            topic, partition, origin, slice, number, messages, value_bytes, largest_bytes, gtid, gtid_messages,
            coordinates, payload[at:],
        )  # fmt: skip
