"""Finds the moments of DDL statements in the source's binlog, if the pipeline published them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from changefeed.ddl.changes import AlterDatabase, CreateDatabase, DropDatabase
from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.session import SessionContext
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.topics import partition_counts
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.topic_name import schema_changes_topic
from changefeed.records.block import ID_HEADER
from changefeed.records.event_id import EventId, moment_of
from changefeed.verify.job import VerifyJob

_TIMEOUT_SECONDS = 60.0


def ddl_moments(job: VerifyJob) -> dict[int, tuple[int, ...]]:
    """By table, the sorted moments of the DDL statements in the schema-changes topic; () with `publish_ddl: off`.

    Raises BrokerUnavailableError.
    """
    stream = (job.source_uuid, BinlogCoordinates.parse(job.start).base)
    numbers = {(table.schema.database, table.schema.table): table.number for table in job.tables.compared}
    found: dict[int, set[int]] = {number: set() for number in numbers.values()}
    pipeline = job.connections.pipeline
    topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
    counts = partition_counts(job.connections.kafka, [topic])
    partitions = [(topic, number) for number in range(counts.get(topic, 0))]
    if partitions:
        with partition_reader(job.connections.kafka, partitions, "to read schema changes") as reader:
            for record in reader.to_end(reader.last_stable_offsets(), timeout_seconds=_TIMEOUT_SECONDS):
                event = EventId.parse(dict(record.headers).get(ID_HEADER, b""))
                if event is None or event.stream != stream or record.value is None:
                    continue
                for number in read_touched_tables(record.value, numbers):
                    found[number].add(moment_of(BinlogCoordinates(event.origin, event.position)))
    return {number: tuple(sorted(moments)) for number, moments in found.items()}


def read_touched_tables(value: bytes, numbers: Mapping[tuple[str, str], int]) -> list[int]:
    """The numbers of the tables that a DDL record changes; all of ``numbers`` if the record cannot be read."""
    try:
        fields = orjson.loads(value)
        fields = fields.get("payload", fields)
        session = fields.get("session") or {}
        context = SessionContext.of_sql_mode(str(fields.get("databaseName") or ""), int(session.get("sql_mode") or 0))
        read = read_statement(str(fields["ddl"]), context)
    except (ValueError, KeyError, TypeError, AttributeError):
        return list(numbers.values())
    if isinstance(read.change, CreateDatabase | AlterDatabase | DropDatabase):
        return [number for name, number in numbers.items() if name[0] == read.change.name]
    if not read.tables:  # its text is hidden, or cannot be parsed
        return list(numbers.values())
    return [numbers[name.database, name.table] for name in read.tables if (name.database, name.table) in numbers]
