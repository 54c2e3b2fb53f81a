"""Message blocks: finished messages in one binary value, the result of decoding and the input of record batches.

One Python object for each message would cost more than decoding it. The layout is little-endian and aligned, so that
arrays can be read without a copy:

    u64 count
    u64 positions[count]       start of the event in the binlog file; the same for all rows of a chunk
    u64 sequences[count]       row within the event << 2 | step
    u32 ends[count][4]         the ends of key, value, event id and last part in data; each begins where the last ended
    u32 seconds[count]         Unix time at which the source wrote the event; 0 if it is not known
    u8  nulls[count]           flags. 1: null key, 2: null value (tombstone), 4: the last part has more headers
    u8  data[]

The last part of a message is its GTID. With more headers it is: u8 size of the GTID, u8 number of headers, the GTID,
and the headers in the layout of Kafka's records, which is a varint with the length of the name, the name, a varint with
the length of the value, the value.

- `row` counts the rows of a binlog event or of a chunk from 0. The events of a compressed transaction share a position,
  so their rows are counted together.
- `step` distinguishes the messages of one row: the change, its tombstone, and the create after a change of key.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from changefeed.records.varint import encode_bytes, part

_COUNT = struct.Struct("<Q")

NULL_KEY = 1
NULL_VALUE = 2
HAS_HEADERS = 4
MAX_HEADERS = 61
"""Limit of headers besides event id and GTID. The number of all headers then takes one byte in a Kafka record."""

Header = tuple[str, bytes]
"""A Kafka record header: its name and its value."""

ID_HEADER = "changefeed.id"
GTID_HEADER = "changefeed.gtid"
COMMIT_HEADER = "changefeed.commit"
"""FILE:POSITION of the XA COMMIT of a prepared transaction. Event ids of its rows say where they were prepared."""
FOREIGN_KEYS_HEADER = "changefeed.foreign_keys"
"""The effect of foreign keys on a changed row: the name of a `ForeignKeys` in lower case."""
DEFINITION_HEADER = "changefeed.definition"
"""In the topic of schema changes: the text, database and session of the DDL as JSON, if the record's format does not
have them."""
READ_HEADER = "changefeed.read"
"""The header of a row that a snapshot read; see `formats.read_header`."""


class ForeignKeys(IntEnum):
    """The effect of foreign keys in a rows event: whether other rows changed, and whether the binlog has the changes.

    `UNKNOWN` has no header. The row comes from MariaDB with checked keys, or no foreign key refers to its table.
    """

    UNKNOWN = 0
    UNCHECKED = 1
    """No effect: the session had foreign_key_checks=0, or a foreign key itself changed the row."""
    LOGGED = 2
    """The binlog has the changes as rows events, because the SQL layer of MySQL 9.6 and later executes them."""
    INNODB = 3
    """InnoDB executed the changes, and the binlog does not have them."""


class Step(IntEnum):
    """The position of a message among the messages of one row change."""

    CHANGE = 0
    TOMBSTONE = 1
    CREATE = 2
    TRANSACTION = 3
    """Not a row change: a record of the begin or end of a transaction."""


@dataclass(frozen=True)
class Message:
    """A Kafka record before it is encoded.

    ``event_id`` is ``server_uuid/origin:position/row``, with ``/step`` for steps after the first.
    """

    position: int
    sequence: int
    key: bytes | None
    value: bytes | None
    event_id: bytes
    gtid: bytes
    headers: tuple[Header, ...] = ()
    """The headers except event id and GTID."""
    seconds: int = 0
    """The Unix time at which the source wrote the event; 0 if it is not known."""

    @property
    def size_bytes(self) -> int:
        """The bytes of key, value and headers."""
        return sum(map(len, (self.key or b"", self.value or b"", self.event_id, _last_part(self))))


@dataclass(frozen=True)
class MessageBlock:
    """The messages of one topic-partition from one slice or chunk, in the order of that slice or chunk.

    ``origin`` is the binlog file or the chunk of their positions (see `model.origin`). ``number`` orders the blocks of
    a slice.
    """

    topic: str
    partition: int
    origin: str
    slice: int
    number: int
    payload: bytes | bytearray

    @property
    def message_count(self) -> int:
        """The number of messages."""
        (count,) = _COUNT.unpack_from(self.payload)
        return int(count)

    def messages(self) -> Iterator[Message]:
        """The messages in order. This is slow, because each message becomes an object."""
        return unpack(self.payload)

    def arrays(self) -> Arrays:
        """The arrays of the block, without an object for each message."""
        return Arrays.of(self.payload)


def sequence_of(row: int, step: Step) -> int:
    """The sequence number of a message, which orders the messages of one position by row and step."""
    return row << 2 | step


@dataclass(frozen=True)
class Arrays:
    """Views of the arrays of a binary value: unsigned numbers of 8, 8, 4, 4 and 1 bytes, then the data."""

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
    """The binary value of ``count`` messages with these ``arrays``, or with parts of them in order.

    The value is writable, because the kernels are compiled for writable arrays.
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
        for field in (message.key, message.value, message.event_id, _last_part(message)):
            if field:
                data += field
            ends.append(len(data))
        null = (NULL_KEY if message.key is None else 0) | (NULL_VALUE if message.value is None else 0)
        nulls.append(null | (HAS_HEADERS if message.headers else 0))
    return join_arrays(len(nulls), (positions, sequences, ends, seconds, nulls, data))


def unpack(payload: bytes | bytearray) -> Iterator[Message]:
    """The messages of a binary value, in order."""
    return messages_of(Arrays.of(payload))


def messages_of(arrays: Arrays, first: int = 0) -> Iterator[Message]:
    """Yield the messages of ``arrays`` in order, from number ``first`` on."""
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
    """The GTID in the last part of a message. ``null`` has the message's flags in `nulls`."""
    return bytes(last[2 : 2 + last[0]] if null & HAS_HEADERS else last)


def _last_part(message: Message) -> bytes:
    if not message.headers:
        return message.gtid
    if len(message.headers) > MAX_HEADERS:
        raise ValueError(f"a message has {len(message.headers)} headers: expected at most {MAX_HEADERS}")
    headers = [encode_bytes(name.encode()) + encode_bytes(value) for name, value in message.headers]
    return b"".join((bytes((len(message.gtid), len(headers))), message.gtid, *headers))


def _headers(last: memoryview) -> Iterator[Header]:
    at = 2 + last[0]
    for _ in range(last[1]):
        name, at = part(last, at)
        value, at = part(last, at)
        yield (name or b"").decode(), value or b""
