"""What a Spark task needs for its part of a window: values that travel in the task's closure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark import TaskContext

from changefeed.archive.archive import Archive
from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.endpoints.endpoints import Endpoints
from changefeed.failover import Mark
from changefeed.file_identity import FileIdentity
from changefeed.formats.format import Format
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.topics import TopicSettings
from changefeed.kafka.window_topics import WindowTopics
from changefeed.mysql.server_ids import ServerIds
from changefeed.mysql.session import Session
from changefeed.pipelines.pipeline import Pipeline
from changefeed.reader import Route, SliceReport
from changefeed.schema_registry.subjects import KnownIds
from changefeed.settlement import Settlement, settle
from changefeed.spark.scouted_bytes import ScoutedBytes
from changefeed.window import Slice, Window


@dataclass(frozen=True)
class IngestJob:
    """One window of one pipeline; ``attempt`` is the fencing token of this attempt to publish it.

    ``topics`` are those that exist, each with its number of partitions and the largest record that it takes. ``given``
    is how many messages earlier attempts at the window gave each topic-partition.

    The connections of ``endpoints`` hold passwords: the closure travels on Spark's own channels only.
    """

    endpoints: Endpoints
    window: Window
    topics: WindowTopics
    attempt: str
    identity: str
    """Whose progress it is: the pipeline's name, or a backfill's own."""
    history: SchemaHistory | None = None
    """The schemas along the window, moved through the statements that were scouted."""
    statements_scouted: bool = True
    """Whether ``history`` has all statements of the window before each slice; false where names come with the rows."""
    statements_ahead: bool = False
    """Whether ``history`` has all statements of the window, those behind each slice, too."""
    files: Mapping[str, FileIdentity] = field(default_factory=dict)
    """The window's binlog files, as its server had them when the attempt began: each reader has to find the same."""
    archive: Archive | None = None
    """Archived files to read instead of the server."""
    folder: str | None = None
    """That of `local_folder`; None where tasks run elsewhere."""
    copies: bool = False
    """Whether Spark may start a second copy of a task that takes long (spark.speculation)."""
    given: Mapping[TopicPartition, int] = field(default_factory=dict)
    tables: tuple[TableName, ...] = ()
    """Those that the server has and the pipeline captures."""
    marks: tuple[Mark, ...] = ()
    """After a failover: how far the old server gave each topic-partition."""
    schema_ids: KnownIds = field(default_factory=dict)
    """Of the schemas that the captured tables have as the window begins, those that are registered."""
    slices: tuple[Slice, ...] = ()
    """The window's, when it is cut."""
    settlement: Settlement = field(default_factory=Settlement)
    """What is not published of the slices, when all of them are decoded."""

    def settled(self, reports: Sequence[SliceReport]) -> IngestJob:
        """The job with what the reports of all slices say of their transactions; raises as `settle` does."""
        return replace(self, settlement=settle(self.slices, reports))

    @property
    def scouted(self) -> ScoutedBytes | None:
        """What the scout keeps of what it reads; None where tasks cannot have it, or read archived files as it does."""
        return ScoutedBytes(self.folder) if self.folder is not None and self.archive is None else None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline, or what of it a backfill runs as."""
        return self.endpoints.pipeline

    def session(self) -> Session:
        """A new connection to the window's server, proved to be there; the caller closes it.

        Raises SourceUnavailableError where the source's address leads to another server.
        """
        return self.endpoints.session_on(self.window.server_uuid)

    def route(self, database: str, table: str) -> Route | None:
        """Where a table's rows go. A table that is not there any more still has its topic, from the template.

        Raises TopicError or BrokerUnavailableError where Kafka has to be asked about that topic, and cannot be.
        """
        route = self.pipeline.route(database, table)
        if route is None:
            return None
        limits = self.topics.made(route.topic, TopicSettings(*route.made_as))
        return replace(route.route, partitions=limits.partitions)

    def format(self) -> Format:
        """The wire format of the window's messages."""
        return self.pipeline.message_format(self.window.frozen_at_ms, self.endpoints.schema_ids(self.schema_ids))

    @property
    def server_ids(self) -> ServerIds:
        """The ids of the tasks that read; none for a backfill, of which any number may run beside the windows."""
        return self.endpoints.server_ids if self.identity == self.pipeline.name else ServerIds(self.identity)


def task_number() -> int:
    """The number of the Spark task that this runs in, among those of its stage; 0 outside of Spark."""
    context = TaskContext.get()
    return context.partitionId() if context else 0
