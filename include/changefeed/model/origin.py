"""What the positions of messages count in: a binlog file, or a chunk of a table's rows.

Who publishes knows an origin by its text only, which travels with blocks and is stored with progress, and asks here
which of two comes first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from changefeed.model.coordinates import BinlogCoordinates

_CHUNK = re.compile(r".+#(\d+)\Z", re.DOTALL)


@dataclass(frozen=True)
class Chunk:
    """One reading of a stretch of a table's rows, by a SELECT.

    ``number`` counts the chunks of all tables that are read together, in the order in which they are published. A
    chunk that is read again is another one, with a number of its own, as its rows may be others by then. All messages
    of a chunk have the same position; their sequences number the rows.
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
    """Whether origin ``first`` comes before ``second``: chunks by their numbers, binlog files by theirs.

    Raises ValueError where they have no order: a chunk and a file, or files of different base names.
    """
    chunks = [_CHUNK.match(origin) for origin in (first, second)]
    if all(chunks):
        numbers = [int(chunk[1]) for chunk in chunks if chunk]
        return numbers[0] < numbers[1]
    if any(chunks):
        raise ValueError(f"{first!r} and {second!r} have no order: one is a binlog file, the other a chunk of a table")
    return BinlogCoordinates(first, 0) < BinlogCoordinates(second, 0)
