"""A finished record batch with its counts, which Spark passes from decoding to publishing."""

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
    """A record batch, which Kafka stores unchanged, with messages of one topic-partition from one slice or chunk.

    The messages are in order. ``origin``, ``slice`` and ``number`` have the same meaning as in a `MessageBlock`. The
    publisher needs these counts, so that it does not decode ``records``:

    - ``messages``: the number of messages
    - ``value_bytes``: the bytes of all values
    - ``largest_bytes``: the bytes of the largest record
    - ``gtid``, ``gtid_messages``: the GTID of the last message, and the number of messages at the end that have it

    ``coordinates`` has the position of each message, compressed.
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
        """The position of each message's event in ``origin``, as unsigned numbers of 8 bytes."""
        return self._places[: self.messages]

    @cached_property
    def sequences(self) -> memoryview:
        """The sequence number of each message, row within the event << 2 | step, as unsigned numbers of 8 bytes."""
        return self._places[self.messages :]

    @cached_property
    def _places(self) -> memoryview:
        return memoryview(lz4.block.decompress(self.coordinates)).cast("Q")

    def block(self) -> MessageBlock:
        """The messages as a block. This is slow, because each message becomes an object."""
        return MessageBlock(self.topic, self.partition, self.origin, self.slice, self.number, pack(self._messages()))

    def _messages(self) -> Iterator[Message]:
        for record, position, sequence in zip(records_of(self.records), self.positions, self.sequences, strict=True):
            (_, event_id), *more = record.headers
            gtid = more.pop(0)[1] if more and more[0][0] == GTID_HEADER else b""
            seconds = record.timestamp_ms // 1000
            yield Message(position, sequence, record.key, record.value, event_id, gtid, tuple(more), seconds)

    def payload(self) -> bytes:
        """One binary value with all fields that are not columns of Spark's rows. `of` reads it."""
        head = _HEAD.pack(
            self.messages, self.largest_bytes, self.gtid_messages, len(self.gtid), len(self.coordinates),
            self.value_bytes,
        )  # fmt: skip
        return b"".join((head, self.gtid, self.coordinates, self.records))

    @classmethod
    def of(cls, topic: str, partition: int, origin: str, slice: int, number: int, payload: bytes) -> Batch:
        """The batch from its `payload` and the columns of Spark's row."""
        messages, largest_bytes, gtid_messages, gtid_size, coordinates_size, value_bytes = _HEAD.unpack_from(payload)
        gtid = payload[_HEAD.size : (at := _HEAD.size + gtid_size)]
        coordinates = payload[at : (at := at + coordinates_size)]
        return cls(
            topic, partition, origin, slice, number, messages, value_bytes, largest_bytes, gtid, gtid_messages,
            coordinates, payload[at:],
        )  # fmt: skip
