"""The origin of a message: a binlog file, or a chunk of a table's rows. A position is relative to its origin.

The publisher stores the text of an origin with its progress, and compares origins with `precedes`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from changefeed.model.coordinates import BinlogCoordinates

_CHUNK = re.compile(r".+#(\d+)\Z", re.DOTALL)


@dataclass(frozen=True)
class Chunk:
    """The rows that one SELECT reads from a range of a table.

    ``number`` counts the chunks of all tables of one read, in the order of publishing. If a chunk is read again, it
    gets another number, because its rows may have changed. All messages of a chunk have the same position; their
    sequence numbers are the numbers of the rows.
    """

    database: str
    table: str
    number: int

    def __str__(self) -> str:
        """The chunk as an origin. No binlog file has such a name: those end in a dot and a number."""
        return f"{self.database}.{self.table}#{self.number}"


def is_chunk(origin: str) -> bool:
    """Whether ``origin`` is a chunk, and not a binlog file."""
    return _CHUNK.match(origin) is not None


def precedes(first: str, second: str) -> bool:
    """Whether origin ``first`` comes before ``second``, by the numbers of two chunks or of two binlog files.

    Raises ValueError if they have no order: a chunk and a file, or files of different base names.
    """
    chunks = [_CHUNK.match(origin) for origin in (first, second)]
    if all(chunks):
        numbers = [int(chunk[1]) for chunk in chunks if chunk]
        return numbers[0] < numbers[1]
    if any(chunks):
        raise ValueError(f"{first!r} and {second!r} have no order: one is a binlog file, the other a chunk of a table")
    return BinlogCoordinates(first, 0) < BinlogCoordinates(second, 0)
