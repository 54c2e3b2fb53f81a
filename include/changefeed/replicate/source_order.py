"""Reads the source's commit order from the headers of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from changefeed.errors import BadRecordError
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.records.block import COMMIT_HEADER, GTID_HEADER, ID_HEADER
from changefeed.records.event_id import EventId


class CommitOrder(NamedTuple):
    """The place of a record's change in the source's commit order; a smaller order was committed earlier.

    ``file`` (a number) and ``position`` are the coordinates of the event, or of the XA COMMIT for rows of a prepared
    transaction. The other fields order the changes at these coordinates.
    """

    file: int
    position: int
    own_file: int = 0
    own_position: int = 0
    row: int = 0
    step: int = 0


def order_at(coordinates: BinlogCoordinates) -> CommitOrder:
    """The smallest order of a change at ``coordinates``. The orders of all earlier changes are smaller."""
    return CommitOrder(coordinates.number, coordinates.position)


@dataclass(frozen=True)
class ChangeId:
    """A record's event id and GTID, from its headers: the server, the binlog ``file`` and the commit order."""

    server_uuid: str
    file: str
    order: CommitOrder
    gtid: str

    @classmethod
    def of(cls, record: KafkaRecord) -> ChangeId | None:
        """The change of a record, from its headers; None for a row of a snapshot.

        Raises BadRecordError if changefeed did not write the record.
        """
        headers = dict(record.headers)
        try:
            event = EventId.parse(headers[ID_HEADER])
            if event is None:
                raise ValueError(headers[ID_HEADER])
            if not event.file:
                return None
            own = (event.file, event.position)
            commit = headers.get(COMMIT_HEADER)
            at = BinlogCoordinates.parse(commit.decode()) if commit else None
            file, first = (at.file, (at.number, at.position)) if at else (event.origin, own)
            order = CommitOrder(*first, *own, event.row, event.step)
            return cls(event.server, file, order, headers.get(GTID_HEADER, b"").decode())
        except (KeyError, ValueError) as error:
            raise BadRecordError(
                f"the record at offset {record.offset} of partition {record.partition} of {record.topic!r} has no "
                f"header {ID_HEADER!r} as changefeed writes it ({error!r}): something else wrote to the topic"
            ) from error
