"""The header `changefeed.id`, which has the event id of a record.

The kernel reads ids of the common form for many records at once (`records.index_kernel`). This module reads all forms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from changefeed.model.coordinates import BinlogCoordinates, file_number
from changefeed.model.origin import is_chunk

EventStream = tuple[str, str]
"""(server, stream): an ordered stream of a server; see `EventId.stream`."""

_ID = re.compile(rb"([^/]+)/(.{1,1000}):(\d{1,20})/(\d{1,20})(?:/(\d{1,20})|/[\w.-]+/\d+)?", re.DOTALL)


@dataclass(frozen=True)
class EventId:
    """The id of an event: ``server_uuid/origin:position/row``, with ``/step`` after the first message of a change.

    Records of statements have their topic and partition in place of the step. ``origin`` is a binlog file, or a chunk
    of rows that a SELECT read.
    """

    server: str
    origin: str
    position: int
    row: int
    step: int

    @classmethod
    def parse(cls, text: bytes) -> EventId | None:
        """The event id of ``text``; None for text that is no event id of changefeed."""
        match = _ID.fullmatch(text)
        if match is None:
            return None
        server, origin, position, row, step = match.groups()
        return cls(
            server.decode("utf-8", "replace"),
            origin.decode("utf-8", "replace"),
            int(position),
            int(row),
            int(step or 0),
        )

    @property
    def is_read(self) -> bool:
        """Whether a SELECT read the row, so that it is in no binlog."""
        return is_chunk(self.origin)

    @property
    def chunk(self) -> int:
        """The number of the chunk; only valid if `is_read`."""
        return int(self.origin.rpartition("#")[2])

    @property
    def file(self) -> int:
        """The number of the binlog file; 0 if the row is in no binlog."""
        return file_number(self.origin)

    @property
    def stream(self) -> EventStream:
        """The stream of the id, within which ids have an order.

        Ids of one server and binlog base name have an order. So do ids of one read of a chunk; the position is part of
        that stream, because another snapshot may use the chunk's number again.
        """
        return self.server, f"{self.origin}:{self.position}" if self.is_read else self.origin.rpartition(".")[0]

    @property
    def order(self) -> tuple[int, int, int]:
        """The order key of the id within its `stream`, which rises along it."""
        moment = 0 if self.is_read else moment_of(BinlogCoordinates(self.origin, self.position))
        return moment, self.row, self.step


def moment_of(coordinates: BinlogCoordinates) -> int:
    """A number that rises along a server's binlog, for coordinates of one base name."""
    from changefeed.records.index_kernel import POSITION_BITS  # imported here: it loads kernels

    return coordinates.number << POSITION_BITS | coordinates.position
