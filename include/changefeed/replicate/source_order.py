"""The order of the source's commits, read off the headers of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from changefeed.errors import BadRecordError
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.records.block import COMMIT_HEADER, GTID_HEADER, ID_HEADER
from changefeed.records.event_id import EventId


class Turn(NamedTuple):
    """When a record's change comes: turns compare as the source committed.

    ``file`` (its number) and ``position`` are those of the event; of a prepared transaction's rows (XA), those of its
    XA COMMIT. What follows orders the changes there.
    """

    file: int
    position: int
    own_file: int = 0
    own_position: int = 0
    row: int = 0
    step: int = 0


def turn_of(coordinates: BinlogCoordinates) -> Turn:
    """The turn that all changes before ``coordinates`` come before."""
    return Turn(coordinates.number, coordinates.position)


@dataclass(frozen=True)
class ChangeId:
    """The header that each record has: which server's event, and where its change stands."""

    server_uuid: str
    file: str
    turn: Turn
    gtid: str

    @classmethod
    def of(cls, record: KafkaRecord) -> ChangeId | None:
        """None for a row that a SELECT read, which is in no binlog. Raises BadRecordError for no record of ours."""
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
            turn = Turn(*first, *own, event.row, event.step)
            return cls(event.server, file, turn, headers.get(GTID_HEADER, b"").decode())
        except (KeyError, ValueError) as error:
            raise BadRecordError(
                f"the record at offset {record.offset} of partition {record.partition} of {record.topic!r} has no "
                f"header {ID_HEADER!r} as changefeed writes it ({error!r}): something else wrote to the topic"
            ) from error
