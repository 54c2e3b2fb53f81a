"""What the tasks of a comparison need: values that travel with them."""

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
from changefeed.verify.read_rows import TableView
from changefeed.verify.tables import JudgedTable, Tables

CHUNK_ROWS = 20_000
"""About so many rows of a table are read at once: it takes a fraction of a second, and few of them change meanwhile."""


@dataclass(frozen=True)
class TableChunk:
    """A stretch of a table's rows that one SELECT reads; ``where`` is its condition with the word WHERE, or ''."""

    number: int
    table: int
    where: str = ""


@dataclass(frozen=True)
class PartitionPiece:
    """A topic's partition from offset ``first``, its first record's, up to offset ``end``."""

    topic: str
    partition: int
    first: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition."""
        return self.topic, self.partition


@dataclass(frozen=True)
class VerifyJob(DriversTask):
    """A comparison of ``tables`` on the server at ``server``, with UUID ``server_uuid``, with their topics.

    ``source_uuid`` is the server whose coordinates count. ``begun`` is where the server stood before the first row was
    read, FILE:POSITION of the source. ``follower`` is its connection id, '' where it is the source itself. ``keys`` are
    the only (table, key) that are looked at; None for all.
    """

    connections: PipelineConnections
    tables: Tables
    server: MysqlConnection
    server_uuid: str
    source_uuid: str
    begun: str
    follower: str = ""
    keys: frozenset[tuple[int, bytes]] | None = None
    sampled: bool = False
    """Whether only some of the server's chunks are read."""
    views: Mapping[int, TableView] = field(default_factory=dict)
    """By table what a snapshot read of those that are counted."""
    names: tuple[tuple[str, str], ...] = ()
    """Of a follower: the (database, table) whose definitions are compared, those that only one server has included."""
    wait_seconds: int = 0
    """For how long a definition may take until it is applied to a follower."""
    deep: bool = False
    """Whether each key's records are looked at, too, from the first to the last."""

    def of_keys(self, keys: frozenset[tuple[int, bytes]]) -> VerifyJob:
        """The same for a few keys."""
        return replace(self, keys=keys)

    def session(self) -> Session:
        """A connection to the server, proved to be there; the caller closes it."""
        return session_on(self.server, self.server_uuid)

    def table(self, number: int) -> JudgedTable:
        """The table with that number."""
        return self.tables.judged[number]

    def wants(self, table: int, key: bytes) -> bool:
        """Whether the key is one of those that are looked at."""
        return self.keys is None or (table, key) in self.keys

    def route(self, database: str, table: str) -> Route | None:
        """Where rows go as records, with none of them left out for being read."""
        route = self.connections.routes.of(database, table)
        return None if route is None else replace(route.route, skipped=frozenset())

    def format(self) -> Format:
        """The wire format of the pipeline's records."""
        return self.connections.routes.format(0)

    @property
    def is_exact(self) -> bool:
        """Whether rows are compared by their values: a second look, at a few. A first one goes by their text."""
        return self.keys is not None

    def record_reader(self, table: JudgedTable) -> RecordReader:
        """What reads the records of the table's topic, which has one format."""
        registry = self.connections.registry
        return written_by(self.format(), table, None if registry is None else registry.schema)


def written_by(format: Format, table: JudgedTable, schemas: SchemaText | None = None) -> RecordReader:
    """What reads the records of ``table`` that ``format``, a pipeline's, wrote."""
    return record_reader(of_table(format, table.schema.database, table.schema.table), schemas)
