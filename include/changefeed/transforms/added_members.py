"""Adds the members that functions added to changes to their records, after the members of the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from json import JSONDecoder

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from changefeed.binlog.kernel import plain_rows
from changefeed.formats.format import RowFormat, joins_rows, member_fault
from changefeed.formats.template import JOINED
from changefeed.records.block import Arrays, Message, messages_of, pack
from changefeed.transforms.sequences import PART_BITS, STEP_BITS

ROWS = b'"rows":['
"""The text before the row of a record that has all rows of an event; unique before the row."""
_DECODER = JSONDecoder()


@dataclass(frozen=True)
class AddedMembers:
    """The added members of changes, by position, row and part: their JSON text, and the number of the change in its
    group."""

    of_change: Mapping[tuple[int, int], tuple[int, str]]

    @classmethod
    def of(cls, facts: NDArray[np.int64], members: pa.Array) -> AddedMembers:
        """The members of the changes of ``facts``, in their order: JSON objects as text, or null."""
        fact_columns = [plain_rows.POSITION, plain_rows.ROW, plain_rows.PART]
        places = zip(facts[:, fact_columns].tolist(), members.to_pylist(), strict=True)
        return cls(
            {
                (position, row << PART_BITS | part): (number, text)
                for number, ((position, row, part), text) in enumerate(places)
                if text
            }
        )

    def write(self, arrays: Arrays, format: RowFormat, fail: Callable[[int, Exception], None]) -> Arrays:
        """The messages of ``arrays`` with these members. ``fail`` is called for changes whose records cannot have
        members. Messages without a value, such as tombstones, get no members."""

        def messages() -> Iterator[Message]:
            for message in messages_of(arrays):
                number, text = self.of_change.get((message.position, message.sequence >> STEP_BITS), (0, ""))
                if not text or message.value is None:
                    yield message
                    continue
                try:
                    yield replace(message, value=_with_members(message.value, text.encode(), format))
                except ValueError as error:
                    fail(number, error)

        return Arrays.of(pack(messages()))


def _with_members(value: bytes, text: bytes, format: RowFormat) -> bytes:
    """``value`` with the members of the object ``text``; raises ValueError if it cannot have members.

    In a record with all rows of an event, the members are added to the object of the row.
    """
    members = orjson.loads(text)
    for name, member in members.items():
        if (fault := member_fault(format, name, member)) is not None:
            raise ValueError(f"member {name!r}: {fault}")
    before, object, after = b"", value, b""
    if value.startswith(JOINED):
        head, object, after = value.rsplit(JOINED, 2)
        before, after = head + JOINED, JOINED + after
    elif joins_rows(format):  # a snapshot's row, which is alone in its record
        before, object, after = _parts_of_read(value)
    try:
        own = orjson.loads(object)
    except ValueError:
        own = None
    if not isinstance(own, dict):
        raise ValueError(f"records of this format are no JSON objects, so they cannot have members {sorted(members)}")
    if twice := sorted(own.keys() & members.keys()):
        raise ValueError(f"the record has a member {twice[0]!r} of its own: give this one another name")
    added = object[:-1] + b"," * bool(own) + orjson.dumps(members)[1:] if members else object
    return before + added + after


def _parts_of_read(value: bytes) -> tuple[bytes, bytes, bytes]:
    """Three parts of the record of a snapshot's row: the text before the row, the row's object, and the text after it.

    The row begins after ROWS, which is unique: quotes inside a string are escaped, so no name or value of the source
    contains it, and the format has no such member before the row.
    """
    begin = value.index(ROWS) + len(ROWS)
    row = value[begin:].decode()
    _, end = _DECODER.raw_decode(row)
    return value[:begin], row[:end].encode(), row[end:].encode()
