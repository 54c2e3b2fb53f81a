"""Finished messages in one binary value: what decoding makes, and what Kafka's record batches are made of.

A Python object per message would cost more than decoding it. The layout is
little-endian and aligned, so that whoever reads its arrays need not copy them:

    u64 count
    u64 positions[count]       start of the event in the binlog file; the same for all rows of a chunk
    u64 sequences[count]       row within the event << 2 | step
    u32 ends[count][4]         where key, value, event id and GTID end in data; each begins where the last ended
    u32 seconds[count]         when the source wrote the event, since 1970; 0 where that is not known
    u8  nulls[count]           1: no key (null), 2: no value (tombstone), 4: the GTID's part has more headers
    u8  data[]

Where there are more headers, the GTID's part is: u8 size of the GTID, u8 number of headers, the GTID, then the headers
as Kafka's records have them: a varint with the length of the name, the name, a varint with the length of the value, the
value. Messages without them have the GTID alone, and pay nothing.

`row` counts the rows of a binlog event from 0 (those of a compressed transaction together, as they share a position),
or those of a chunk.
`step` tells apart the messages that one row makes: the change, its tombstone, and the create after a change of key.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from changefeed.records.varint import part, written_part

_COUNT = struct.Struct("<Q")

NULL_KEY = 1
NULL_VALUE = 2
HAS_HEADERS = 4
MAX_HEADERS = 61
"""How many a message may have besides event id and GTID, so that their number is one byte of a Kafka record."""

Header = tuple[str, bytes]
"""A Kafka record header: its name and its value."""

ID_HEADER = "changefeed.id"
GTID_HEADER = "changefeed.gtid"
COMMIT_HEADER = "changefeed.commit"
"""FILE:POSITION of the XA COMMIT that committed a prepared transaction: its rows' ids say where they were prepared."""
FOREIGN_KEYS_HEADER = "changefeed.foreign_keys"
"""What foreign keys did with a row that was changed: one of `ForeignKeys`, in lower case."""
DEFINITION_HEADER = "changefeed.definition"
"""Of the record of a definition in the topic of schema changes: its text, database and session as JSON, where the
record's format does not say them."""
READ_HEADER = "changefeed.read"
"""Of a row that a snapshot read: see `formats.read_header`."""


class ForeignKeys(IntEnum):
    """What a rows event says of foreign keys: whether rows of other tables changed with its own, and are in the binlog.

    `UNKNOWN` where no header says it: a row of MariaDB whose keys were checked, or of a table that no key refers to.
    """

    UNKNOWN = 0
    UNCHECKED = 1
    """None did anything: the session had foreign_key_checks=0, or the row was changed by a key itself."""
    LOGGED = 2
    """What they did is in rows events of its own: MySQL from 9.6 on carries them out itself."""
    INNODB = 3
    """InnoDB carried them out, and the binlog does not have it."""


class Step(IntEnum):
    """Which of the messages of one row change."""

    CHANGE = 0
    TOMBSTONE = 1
    CREATE = 2
    TRANSACTION = 3
    """None of a row: the record that says that a transaction begins or ends."""


@dataclass(frozen=True)
class Message:
    """One Kafka record to be.

    ``event_id`` is ``server_uuid/origin:position/row`` and, past the first step, ``/step``.
    """

    position: int
    sequence: int
    key: bytes | None
    value: bytes | None
    event_id: bytes
    gtid: bytes
    headers: tuple[Header, ...] = ()
    """The record headers that it has besides event id and GTID."""
    seconds: int = 0
    """When the source wrote the event, since 1970; 0 where that is not known."""

    @property
    def size_bytes(self) -> int:
        """Of key, value and headers."""
        return sum(map(len, (self.key or b"", self.value or b"", self.event_id, _last_part(self))))


@dataclass(frozen=True)
class MessageBlock:
    """Messages of one topic-partition out of one slice or chunk, in its order.

    ``origin`` is what their positions count in, a binlog file or a chunk (see `origin`). ``number`` orders the blocks
    of a slice.
    """

    topic: str
    partition: int
    origin: str
    slice: int
    number: int
    payload: bytes | bytearray

    @property
    def message_count(self) -> int:
        """How many messages it holds."""
        (count,) = _COUNT.unpack_from(self.payload)
        return int(count)

    def messages(self) -> Iterator[Message]:
        """They themselves, in order: for tests and for what is rare, as each becomes an object."""
        return unpack(self.payload)

    def arrays(self) -> Arrays:
        """Its arrays, for those who cannot afford an object for each message."""
        return Arrays.of(self.payload)


def sequence_of(row: int, step: Step) -> int:
    """What orders the messages of one position: their row, and the step within it."""
    return row << 2 | step


@dataclass(frozen=True)
class Arrays:
    """The arrays of a binary value, as views of it: unsigned numbers of 8, 8, 4, 4 and 1 bytes, then the data."""

    positions: memoryview
    sequences: memoryview
    ends: memoryview
    seconds: memoryview
    nulls: memoryview
    data: memoryview

    @classmethod
    def of(cls, payload: bytes | bytearray) -> Arrays:
        """The arrays of ``payload``."""
        (count,) = _COUNT.unpack_from(payload)
        view, at = memoryview(payload), _COUNT.size
        return cls(
            view[at : (at := at + 8 * count)].cast("Q"),
            view[at : (at := at + 8 * count)].cast("Q"),
            view[at : (at := at + 16 * count)].cast("I"),
            view[at : (at := at + 4 * count)].cast("I"),
            view[at : (at := at + count)],
            view[at:],
        )


def join_arrays(count: int, arrays: Iterable[bytearray | memoryview | array[int]]) -> bytearray:
    """The binary value of ``count`` messages whose arrays, or pieces of them in order, are ``arrays``.

    It can be written to, as kernels are compiled for arrays of that type.
    """
    return bytearray().join((_COUNT.pack(count), *arrays))


def pack(messages: Iterable[Message]) -> bytearray:
    """The binary value of ``messages``, in their order."""
    positions, sequences, ends, seconds = array("Q"), array("Q"), array("I"), array("I")
    nulls, data = bytearray(), bytearray()
    for message in messages:
        positions.append(message.position)
        sequences.append(message.sequence)
        seconds.append(message.seconds)
        for piece in (message.key, message.value, message.event_id, _last_part(message)):
            if piece:
                data += piece
            ends.append(len(data))
        null = (NULL_KEY if message.key is None else 0) | (NULL_VALUE if message.value is None else 0)
        nulls.append(null | (HAS_HEADERS if message.headers else 0))
    return join_arrays(len(nulls), (positions, sequences, ends, seconds, nulls, data))


def unpack(payload: bytes | bytearray) -> Iterator[Message]:
    """The messages of a binary value, in order."""
    return messages_of(Arrays.of(payload))


def messages_of(arrays: Arrays, first: int = 0) -> Iterator[Message]:
    """The messages of ``arrays`` from number ``first`` on, in order."""
    ends, nulls, data = arrays.ends, arrays.nulls, arrays.data
    begin = ends[4 * first - 1] if first else 0
    for index in range(first, len(arrays.positions)):
        position, sequence = arrays.positions[index], arrays.sequences[index]
        key_end, value_end, id_end, gtid_end = ends[4 * index : 4 * index + 4]
        last = data[id_end:gtid_end]
        gtid = gtid_of(last, nulls[index])
        yield Message(
            position,
            sequence,
            None if nulls[index] & NULL_KEY else bytes(data[begin:key_end]),
            None if nulls[index] & NULL_VALUE else bytes(data[key_end:value_end]),
            bytes(data[value_end:id_end]),
            gtid,
            tuple(_headers(last)) if nulls[index] & HAS_HEADERS else (),
            arrays.seconds[index],
        )
        begin = gtid_end


def gtid_of(last: memoryview, null: int) -> bytes:
    """The GTID out of the last part of a message, behind its event id; ``null`` is the message's of `nulls`."""
    return bytes(last[2 : 2 + last[0]] if null & HAS_HEADERS else last)


def _last_part(message: Message) -> bytes:
    if not message.headers:
        return message.gtid
    if len(message.headers) > MAX_HEADERS:
        raise ValueError(f"a message has {len(message.headers)} headers: wanted at most {MAX_HEADERS}")
    headers = [written_part(name.encode()) + written_part(value) for name, value in message.headers]
    return b"".join((bytes((len(message.gtid), len(headers))), message.gtid, *headers))


def _headers(last: memoryview) -> Iterator[Header]:
    at = 2 + last[0]
    for _ in range(last[1]):
        name, at = part(last, at)
        value, at = part(last, at)
        yield (name or b"").decode(), value or b""
