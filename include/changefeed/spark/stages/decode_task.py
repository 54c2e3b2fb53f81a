"""The values that a Spark task needs to make messages of its part of a source; they are pickled with the task."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext

from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.formats.format import Format
from changefeed.kafka.schema_registry.subjects import KnownIds
from changefeed.kafka.topics import TopicSettings
from changefeed.kafka.window_topics import WindowTopics
from changefeed.model.column_rules import ColumnRules
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.file_identity import FileIdentity
from changefeed.model.route import Route
from changefeed.model.window import Slice
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.source.archive.archive import Archive
from changefeed.source.mysql.own_tables import is_own_table
from changefeed.source.mysql.server_ids import ServerIds
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import session_on
from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.spark.stages.scouted_bytes import ScoutedBytes

if TYPE_CHECKING:  # only workers load the kernels
    from changefeed.binlog.programs.program import WrittenRows


@dataclass(frozen=True, kw_only=True)
class SourceTask(DriversTask):
    """Makes messages of one server's binlog events, or of rows of its tables.

    ``topics`` are the existing topics, with their partitions and their largest record. ``frozen_at_ms`` is the time at
    which the plan was made; messages have it.

    ``connections`` contains passwords, so the task must travel only on Spark's own channels.
    """

    connections: PipelineConnections
    server_uuid: str
    topics: WindowTopics
    identity: str
    """The owner of the progress: the pipeline's name, or the identity of a backfill or snapshot."""
    frozen_at_ms: int
    schema_ids: KnownIds = field(default_factory=dict)
    """The registered ids of the schemas that the captured tables have at the window's start."""
    folder: str | None = None
    """The folder of `SparkTarget.local_folder`; None if tasks run on other machines."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline; for a backfill, with the backfill's settings."""
        return self.connections.pipeline

    def session(self) -> Session:
        """A new connection to the server, whose UUID is checked; the caller closes it.

        Raises SourceUnavailableError if the source's address leads to another server.
        """
        return session_on(self.connections.mysql, self.server_uuid)

    def route(self, database: str, table: str) -> Route | None:
        """The route of a table's rows; None if it is not captured. A dropped table has the topic of the template.

        Raises TopicError or BrokerUnavailableError if the topic has to be looked up and Kafka fails.
        """
        route = self.connections.routes.of(database, table)
        if route is None:
            return None
        limits = self.topics.ensure(route.topic, TopicSettings(*route.creation_settings))
        return replace(route.route, partitions=limits.partitions)

    def database_route(self, database: str) -> Route | None:
        """The route of statements about a database; None if its tables do not share a topic. Raises what `route`
        raises."""
        route = self.connections.routes.of_database(database)
        if route is None:
            return None
        limits = self.topics.ensure(route.topic, TopicSettings(*route.creation_settings))
        return replace(route.route, partitions=limits.partitions)

    def format(self) -> Format:
        """The wire format of the messages."""
        return self.connections.routes.format(self.frozen_at_ms, self.connections.schema_ids(self.schema_ids))

    @property
    def column_rules(self) -> ColumnRules:
        """The rules that hide or mask columns."""
        return self.connections.column_rules

    @property
    def compared_as(self) -> WrittenRows | None:
        """The form in which rows are compared for `Route.unchanged_skipped`; None for the form of the messages."""
        return None


@dataclass(frozen=True, kw_only=True)
class DecodeTask(SourceTask):
    """Decodes slices of a window that begins at ``start``."""

    start: BinlogCoordinates
    attempt: str = ""
    """The fencing token of the attempt; all windows under one lease have the same."""
    history: SchemaHistory | None = None
    """The schema history, advanced by the scouted statements."""
    statements_scouted: bool = True
    """Whether ``history`` has all statements of the window before each slice; not needed if rows have column names."""
    statements_ahead: bool = False
    """Whether ``history`` has all statements of the window, also those after each slice."""
    files: Mapping[str, FileIdentity] = field(default_factory=dict)
    """The identities of the window's binlog files when the attempt began; each reader checks them."""
    archive: Archive | None = None
    """Archived files to read instead of the server."""
    tables: tuple[TableName, ...] = ()
    """The captured tables that the server has."""
    parked: frozenset[str] = frozenset()
    """The captured tables, as "database.table", whose changes are left out. Their DDL is followed and published."""
    slices: tuple[Slice, ...] = ()
    """The slices of the window that are cut so far."""

    @property
    def window_key(self) -> Hashable:
        """What all tasks of one attempt at a window have in common, and no other task has."""
        return self.attempt, self.server_uuid, self.start, self.frozen_at_ms

    def route(self, database: str, table: str) -> Route | None:
        """See `SourceTask`. The server's own tables are never captured, and parked tables are left out."""
        is_left_out = self.is_own(database, table) or f"{database}.{table}" in self.parked
        return None if is_left_out else super().route(database, table)

    def is_own(self, database: str, table: str) -> bool:
        """Whether the table is a system table of the server. If the history does not name the server, system tables of
        all known servers count."""
        server = self.history.server if self.history is not None else None
        if server is None:
            return is_own_table(database, table)
        return is_own_table(database, table, is_mariadb=server.is_mariadb, major=server.version[0])

    @property
    def scouted_bytes(self) -> ScoutedBytes | None:
        """The bytes that the scout stores; None if tasks cannot read them, or if they read an archive."""
        return ScoutedBytes(self.folder) if self.folder is not None and self.archive is None else None

    @property
    def server_ids(self) -> ServerIds:
        """The server ids of reading tasks; none for a backfill, because several may run in parallel with windows."""
        return self.connections.server_ids if self.identity == self.pipeline.name else ServerIds(self.identity)

    @property
    def reads_one_by_one(self) -> bool:
        """Whether only one task at a time reads the server, because the read rate is limited."""
        return self.pipeline.source.max_bytes_per_second is not None and self.archive is None

    def readers(self, slices: int) -> int:
        """How many tasks may read ``slices`` slices in parallel."""
        return min(1, slices) if self.reads_one_by_one else self.server_ids.tasks(slices)


def task_number() -> int:
    """The number of the calling Spark task in its stage; 0 outside of Spark."""
    context = TaskContext.get()
    return context.partitionId() if context else 0
