"""What a Spark task needs to make messages of its part of a source: values that travel in the task's closure."""

from __future__ import annotations

from collections.abc import Mapping
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
from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.spark.stages.scouted_bytes import ScoutedBytes

if TYPE_CHECKING:  # only workers load the kernels
    from changefeed.binlog.programs.program import WrittenRows


@dataclass(frozen=True, kw_only=True)
class SourceTask(DriversTask):
    """Makes messages of what is on one server, be it events of its binlog or rows of its tables.

    ``topics`` are those that exist, each with its number of partitions and the largest record that it takes.
    ``frozen_at_ms`` is when it was decided what is read: the time that messages name.

    The connections of ``connections`` hold passwords: the closure travels on Spark's own channels only.
    """

    connections: PipelineConnections
    server_uuid: str
    topics: WindowTopics
    identity: str
    """Whose progress it is: the pipeline's name, or a backfill's or snapshot's own."""
    frozen_at_ms: int
    schema_ids: KnownIds = field(default_factory=dict)
    """Of the schemas that the captured tables have as the window begins, those that are registered."""
    folder: str | None = None
    """That of `SparkTarget.local_folder`; None where tasks run elsewhere."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline, or what of it a backfill runs as."""
        return self.connections.pipeline

    def session(self) -> Session:
        """A new connection to the server, proved to be that server; the caller closes it.

        Raises SourceUnavailableError where the source's address leads to another server.
        """
        return self.connections.session_on(self.server_uuid)

    def route(self, database: str, table: str) -> Route | None:
        """Where a table's rows go. A table that is not there any more still has its topic, from the template.

        Raises TopicError or BrokerUnavailableError where Kafka has to be asked about that topic, and cannot be.
        """
        route = self.connections.routes.of(database, table)
        if route is None:
            return None
        limits = self.topics.made(route.topic, TopicSettings(*route.made_as))
        return replace(route.route, partitions=limits.partitions)

    def database_route(self, database: str) -> Route | None:
        """Where statements about a database go; None where its tables share no topic. Raises as `route`."""
        route = self.connections.routes.of_database(database)
        if route is None:
            return None
        limits = self.topics.made(route.topic, TopicSettings(*route.made_as))
        return replace(route.route, partitions=limits.partitions)

    def format(self) -> Format:
        """The wire format of the messages."""
        return self.connections.routes.format(self.frozen_at_ms, self.connections.schema_ids(self.schema_ids))

    @property
    def column_rules(self) -> ColumnRules:
        """What rows of tables are read without, or with masks."""
        return self.connections.column_rules

    @property
    def compared_as(self) -> WrittenRows | None:
        """How updates are written for `Route.unchanged_skipped`, where it is not as the messages are."""
        return None


@dataclass(frozen=True, kw_only=True)
class DecodeTask(SourceTask):
    """Decodes slices of one window, which begins at ``start``."""

    start: BinlogCoordinates
    attempt: str = ""
    """The attempt to publish the window: what a worker made for one slice of it serves the next."""
    history: SchemaHistory | None = None
    """The schemas along the window, moved through the statements that were scouted."""
    statements_scouted: bool = True
    """Whether ``history`` has all statements of the window before each slice; false where names come with the rows."""
    statements_ahead: bool = False
    """Whether ``history`` has all statements of the window, those after each slice, too."""
    files: Mapping[str, FileIdentity] = field(default_factory=dict)
    """The window's binlog files, as its server had them when the attempt began: each reader has to find the same."""
    archive: Archive | None = None
    """Archived files to read instead of the server."""
    tables: tuple[TableName, ...] = ()
    """Those that the server has and the pipeline captures."""
    slices: tuple[Slice, ...] = ()
    """The window's, as far as it is cut."""

    def route(self, database: str, table: str) -> Route | None:
        """See `SourceTask`. The server's own tables are not captured, whatever the patterns say."""
        return None if self.is_own(database, table) else super().route(database, table)

    def is_own(self, database: str, table: str) -> bool:
        """Whether the table is one that the server brings along; of any server where the history does not say which."""
        server = self.history.server if self.history is not None else None
        if server is None:
            return is_own_table(database, table)
        return is_own_table(database, table, is_mariadb=server.is_mariadb, major=server.version[0])

    @property
    def scouted(self) -> ScoutedBytes | None:
        """What the scout keeps of what it reads; None where tasks cannot have it, or read archived files as it does."""
        return ScoutedBytes(self.folder) if self.folder is not None and self.archive is None else None

    @property
    def server_ids(self) -> ServerIds:
        """The ids of the tasks that read; none for a backfill, of which any number may run beside the windows."""
        return self.connections.server_ids if self.identity == self.pipeline.name else ServerIds(self.identity)

    @property
    def reads_one_by_one(self) -> bool:
        """Whether one task at a time reads the server, so that its speed is that of all."""
        return self.pipeline.source.max_bytes_per_second is not None and self.archive is None

    def readers(self, slices: int) -> int:
        """How many tasks may read so many slices at once."""
        return min(1, slices) if self.reads_one_by_one else self.server_ids.tasks(slices)


def task_number() -> int:
    """The number of the Spark task that this runs in, among those of its stage; 0 outside of Spark."""
    context = TaskContext.get()
    return context.partitionId() if context else 0
