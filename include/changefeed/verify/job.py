"""The values that the tasks of a comparison need. Spark pickles them with the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from changefeed.formats.by_table import of_table
from changefeed.formats.format import Format, record_reader
from changefeed.formats.reader import RecordReader, SchemaText
from changefeed.kafka.progress import TopicPartition
from changefeed.model.connection import MysqlConnection
from changefeed.model.route import Route
from changefeed.pipeline.connections import PipelineConnections
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import session_on
from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.verify.read_rows import SnapshotView
from changefeed.verify.tables import ComparedTable, Tables

CHUNK_ROWS = 20_000
"""The approximate number of rows that one SELECT reads. It takes a fraction of a second, so few rows change meanwhile.
"""


@dataclass(frozen=True)
class TableChunk:
    """A range of a table's rows that one SELECT reads. ``where``: its index hint and WHERE clause, '' for all rows."""

    number: int
    table: int
    where: str = ""


@dataclass(frozen=True)
class OffsetRange:
    """The records of a partition from its earliest offset ``first`` up to but not including ``end``."""

    topic: str
    partition: int
    first: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


@dataclass(frozen=True)
class VerifyJob(DriversTask):
    """A comparison of ``tables`` on ``server``, whose UUID is ``server_uuid``, with their topics.

    - ``source_uuid``: the UUID of the source. All positions are coordinates of its binlog.
    - ``start``: the server's position before the first row was read, as FILE:POSITION.
    - ``follower``: the follower's connection id; '' if the server is the source.
    - ``keys``: the (table, key) to compare; None for all keys.
    """

    connections: PipelineConnections
    tables: Tables
    server: MysqlConnection
    server_uuid: str
    source_uuid: str
    start: str
    follower: str = ""
    keys: frozenset[tuple[int, bytes]] | None = None
    sampled: bool = False
    """Whether only a sample of the server's chunks is read."""
    views: Mapping[int, SnapshotView] = field(default_factory=dict)
    """By table without a key, the last snapshot's view of it."""
    names: tuple[tuple[str, str], ...] = ()
    """If a follower is compared: the (database, table) whose table definitions are compared, even if only one of the
    servers has the table."""
    wait_seconds: int = 0
    """The maximum time to wait until the follower has applied the source's DDL."""
    deep: bool = False
    """Whether all records of each key are checked too."""

    def for_keys(self, keys: frozenset[tuple[int, bytes]]) -> VerifyJob:
        """A copy of the job that compares only ``keys``."""
        return replace(self, keys=keys)

    def session(self) -> Session:
        """A new connection to the server; the caller closes it. Checks the server's UUID."""
        return session_on(self.server, self.server_uuid)

    def table(self, number: int) -> ComparedTable:
        """The table with that number."""
        return self.tables.compared[number]

    def includes(self, table: int, key: bytes) -> bool:
        """Whether the key is compared."""
        return self.keys is None or (table, key) in self.keys

    def route(self, database: str, table: str) -> Route | None:
        """The table's route, without skipped ops; None if the pipeline does not capture the table."""
        route = self.connections.routes.of(database, table)
        return None if route is None else replace(route.route, skipped=frozenset())

    def format(self) -> Format:
        """The wire format of the pipeline's records."""
        return self.connections.routes.format(0)

    @property
    def is_exact(self) -> bool:
        """Whether rows are compared by their values. The first round compares their text, later rounds their values."""
        return self.keys is not None

    def record_reader(self, table: ComparedTable) -> RecordReader:
        """The reader of the records in the table's topic."""
        registry = self.connections.registry
        return record_reader_of(self.format(), table, None if registry is None else registry.schema)


def record_reader_of(format: Format, table: ComparedTable, schemas: SchemaText | None = None) -> RecordReader:
    """The reader of records of ``table`` that ``format`` wrote."""
    return record_reader(of_table(format, table.schema.database, table.schema.table), schemas)
