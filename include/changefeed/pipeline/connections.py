"""A pipeline together with its connections: the one value that a stage gets of where to read and where to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from changefeed.errors import SettingsError
from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from changefeed.kafka.log_keys import LogKeys
from changefeed.kafka.schema_log import SchemaLog
from changefeed.kafka.schema_registry.client import Registry
from changefeed.kafka.schema_registry.connection import RegistryConnection
from changefeed.kafka.schema_registry.subjects import KnownIds, Subjects
from changefeed.kafka.topics import commit_log_settings, ensure_topics
from changefeed.model.column_rules import ColumnRules
from changefeed.model.connection import OF_A_RUN, ConnectionLookup, MysqlConnection, Patience, kafka_parts
from changefeed.model.topic_name import commit_log_topic, schema_changes_topic, schema_history_topic
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import Routes, compile_routes
from changefeed.settings.transform_settings import TransformCall
from changefeed.source.mysql.server_ids import ServerIds
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import session_on


@dataclass(frozen=True)
class PipelineConnections:
    """The source and the Kafka cluster of ``pipeline``. Nothing is connected before it is asked for.

    A connection is looked up when it is first needed, so what reads only MySQL does not miss a Kafka connection.
    ``lookup`` raises SettingsError for a connection that does not exist.

    Pickled for a Spark worker, which can look nothing up, it takes its connections along, passwords included, the keys
    of its logs and the secrets of masks: it travels on Spark's own channels only. None of them shows in its repr.
    """

    pipeline: Pipeline
    lookup: ConnectionLookup = field(repr=False)
    patience: Patience = OF_A_RUN

    @cached_property
    def mysql(self) -> MysqlConnection:
        """How the source is reached."""
        uri = self.lookup(self.pipeline.source.connection)
        with _named(self.pipeline.source.connection):
            return MysqlConnection.from_uri(uri, self.patience)

    @cached_property
    def kafka(self) -> KafkaConnection:
        """How the Kafka cluster is reached."""
        uri = self.lookup(self.pipeline.kafka.connection)
        with _named(self.pipeline.kafka.connection):
            reached = KafkaConnection(*kafka_parts(uri), timeout_seconds=self.patience.connect_seconds)
        return replace(reached, log_keys=LogKeys(self.pipeline.commit_log.keys(self.lookup)))

    @cached_property
    def registry(self) -> Registry | None:
        """The schema registry of the pipeline's formats; None where none has its schemas in one."""
        connection_id = self.routes.registry
        if connection_id is None:
            return None
        uri = self.lookup(connection_id)
        with _named(connection_id):
            return Registry(RegistryConnection.from_uri(uri, self.patience))

    def schema_ids(self, known: KnownIds) -> Subjects | None:
        """The ids of the schemas in the pipeline's topics, of which some are ``known``; None without a registry."""
        if self.registry is None:
            return None
        pipeline, routes = self.pipeline, self.routes

        def topic_of(database: str, table: str) -> str:
            route = routes.of(database, table)
            if route is None:
                raise SettingsError(f"{database}.{table} is left out of pipeline {pipeline.name!r}: it has no topic")
            return route.topic

        return Subjects(self.registry, topic_of, schema_changes_topic(pipeline.name, pipeline.topics.suffix), known)

    @cached_property
    def routes(self) -> Routes:
        """Where the changes of the pipeline's tables go."""
        return compile_routes(self.pipeline)

    @cached_property
    def column_rules(self) -> ColumnRules:
        """What the pipeline leaves out and masks, with the secrets of its masks."""
        return self.pipeline.column_rules(self.lookup)

    @cached_property
    def transform_calls(self) -> tuple[TransformCall, ...]:
        """The functions that the pipeline's changes go through, with their secrets."""
        return self.pipeline.transform_calls(self.lookup)

    def session(self) -> Session:
        """A new connection to the source, for queries; the caller closes it. Raises as `Session` does."""
        return Session(self.mysql)

    def session_on(self, server_uuid: str) -> Session:
        """As `session`, proved to be on the server with that UUID; for all that belongs to a window.

        Raises SourceUnavailableError where the connection leads to another server.
        """
        return session_on(self.mysql, server_uuid)

    @property
    def server_ids(self) -> ServerIds:
        """The ids of the tasks that read the pipeline's windows; whatever else reads the source names no id."""
        return ServerIds(self.pipeline.name, self.pipeline.source.server_id_range)

    def commit_log(self, identity: str | None = None) -> CommitLog:
        """The commit log of ``identity``, to read: of the pipeline's windows, or of a backfill's own."""
        return CommitLog(self.kafka, commit_log_topic(self.pipeline.name), identity or self.pipeline.name)

    def schema_log(self) -> SchemaLog:
        """The pipeline's schema history in Kafka."""
        return SchemaLog(self.kafka, schema_history_topic(self.pipeline.name), self.pipeline.name)

    def lease(self, identity: str | None = None, *, brief: bool = False, patience_seconds: float = 0.0) -> Lease:
        """The claim of one run on ``identity``, still to be entered; see `Lease`."""
        topic, seconds = commit_log_topic(self.pipeline.name), self.pipeline.kafka.lease_seconds
        identity = identity or self.pipeline.name
        return Lease(
            self.kafka,
            topic,
            identity,
            seconds,
            brief=brief,
            patience_seconds=patience_seconds,
            transaction_seconds=self.pipeline.kafka.transaction_timeout_seconds,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "lookup": _no_lookup,
            "mysql": self.mysql,
            "kafka": self.kafka,
            "routes": self.routes,
            "column_rules": self.column_rules,
            "transform_calls": self.transform_calls,
            "registry": self.registry,
        }


def ensure_commit_log(connections: PipelineConnections) -> None:
    """Make the topic of the pipeline's commit log, where it is missing. Raises as `ensure_topics`."""
    topics = connections.pipeline.topics
    wanted = {commit_log_topic(connections.pipeline.name): commit_log_settings(topics.replication_factor)}
    ensure_topics(connections.kafka, wanted, create=topics.create)


@contextmanager
def _named(connection_id: str) -> Iterator[None]:
    """Say of which connection what is wrong with its URI."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"connection {connection_id!r}: {error}") from None


def _no_lookup(connection_id: str) -> str:
    raise SettingsError(f"connection {connection_id!r} cannot be looked up in a Spark worker, which has no connections")
