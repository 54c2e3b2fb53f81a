"""The header `changefeed.id` read back: which change a record is of.

The kernel reads the common form for many records at once (`records.index_kernel`), and leaves all others to this.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from changefeed.model.coordinates import BinlogCoordinates, file_number
from changefeed.model.origin import is_chunk
from changefeed.records.index_kernel import POSITION_BITS

EventStream = tuple[str, str]
"""A server, and what of it has an order: see `EventId.stream`."""

_ID = re.compile(rb"([^/]+)/(.+):(\d+)/(\d+)(?:/(\d+)|/[\w.-]+/\d+)?", re.DOTALL)


@dataclass(frozen=True)
class EventId:
    """``server_uuid/origin:position/row``, and ``/step`` behind the first message of a change; records of statements
    name their topic and partition there.

    ``origin`` is a binlog file or a chunk of rows that were read.
    """

    server: str
    origin: str
    position: int
    row: int
    step: int

    @classmethod
    def parse(cls, text: bytes) -> EventId | None:
        """None for what is no id of changefeed's."""
        match = _ID.fullmatch(text)
        if match is None:
            return None
        server, origin, position, row, step = match.groups()
        return cls(server.decode(), origin.decode("utf-8", "replace"), int(position), int(row), int(step or 0))

    @property
    def is_read(self) -> bool:
        """Whether the row was read by a SELECT, and is in no binlog."""
        return is_chunk(self.origin)

    @property
    def chunk(self) -> int:
        """The number of the chunk that the row was read in; only of one that `is_read`."""
        return int(self.origin.rpartition("#")[2])

    @property
    def file(self) -> int:
        """The number of the binlog file; 0 where the row is in none."""
        return file_number(self.origin)

    @property
    def stream(self) -> EventStream:
        """Ids with the same server and base name of its binlog have an order; so have those of one reading of a chunk,
        whose number another snapshot may use again."""
        return self.server, f"{self.origin}:{self.position}" if self.is_read else self.origin.rpartition(".")[0]

    @property
    def order(self) -> tuple[int, int, int]:
        """Rises along `stream`."""
        moment = 0 if self.is_read else moment_of(BinlogCoordinates(self.origin, self.position))
        return moment, self.row, self.step


def moment_of(coordinates: BinlogCoordinates) -> int:
    """A number that rises along a server's binlog, for coordinates of one base name."""
    return coordinates.number << POSITION_BITS | coordinates.position
