"""All rows of a table without a primary key, as a snapshot read them in one view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from changefeed.block import READ_HEADER
from changefeed.errors import TopicError
from changefeed.formats.envelope import Envelope
from changefeed.formats.read_header import ReadHeader
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.read_record import TableReadRecord
from changefeed.kafka.topics import partition_counts

_PATIENCE_SECONDS = 150.0


@dataclass(frozen=True)
class TableRows:
    """Reads them from the topics of the cluster at ``connection``."""

    connection: KafkaConnection

    def of(self, record: TableReadRecord) -> Iterator[Envelope]:
        """The rows of a table that ``record`` says to be published. Raises TopicError where some are not there."""
        count = 0
        partitions = [
            (record.topic, each) for each in range(partition_counts(self.connection, [record.topic])[record.topic])
        ]
        wanted = f"to fill table {record.table} of a follower"
        with partition_reader(self.connection, partitions, wanted) as reader:
            for each in reader.to_end(patience_seconds=_PATIENCE_SECONDS):
                if not _is_read_by(record.snapshot, each):
                    continue
                change = Envelope.of(each.value or b"")
                if f"{change.database}.{change.table}" == record.table:
                    count += 1
                    yield change
        if count != record.rows:
            raise TopicError(
                f"snapshot {record.snapshot!r} published {record.rows} rows of {record.table}, and topic "
                f"{record.topic!r} has {count} of them: the others were removed (retention.ms, retention.bytes). Take "
                "another snapshot of the table."
            )


def _is_read_by(snapshot: str, record: KafkaRecord) -> bool:
    headers = dict(record.headers)
    try:
        read = ReadHeader.of(headers[READ_HEADER])
    except (KeyError, ValueError):
        return False
    return read.snapshot == snapshot and bool(record.value)
