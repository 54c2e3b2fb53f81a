"""A pipeline together with its connections, as one value: the source and the targets of every stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from changefeed.errors import SettingsError
from changefeed.model.column_rules import ColumnRules
from changefeed.model.connection import RUN_ANSWER_LIMITS, AnswerLimits, ConnectionLookup, MysqlConnection, kafka_parts
from changefeed.model.file_identity import FileIdentity
from changefeed.model.topic_name import commit_log_topic, schema_changes_topic, schema_history_topic
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import Routes, compile_routes
from changefeed.settings.site import load_site
from changefeed.settings.transform_settings import TransformCall
from changefeed.source.mysql.hosts import first_reachable
from changefeed.source.mysql.server_ids import ServerIds
from changefeed.source.mysql.session import Session, kept_session
from changefeed.source.mysql.source import Head, check_server

if TYPE_CHECKING:  # at run time a reader of MySQL only, such as `status`, would load the client of Kafka
    from changefeed.kafka.commit_log.log import CommitLog
    from changefeed.kafka.connection import KafkaConnection
    from changefeed.kafka.lease import Lease
    from changefeed.kafka.log_keys import LogKeys
    from changefeed.kafka.schema_log import SchemaLog
    from changefeed.kafka.schema_registry.client import Registry
    from changefeed.kafka.schema_registry.exemptions import Exemptions
    from changefeed.kafka.schema_registry.subjects import KnownIds, Subjects


WINDOW_SECONDS = 120.0
"""How long an operation waits for the current window of a continuous run."""


@dataclass(frozen=True)
class PipelineConnections:
    """The source, the Kafka cluster and the schema registry of ``pipeline``.

    A connection is looked up and opened at its first use, so code that reads only MySQL needs no Kafka connection.
    ``lookup`` raises SettingsError for a connection that does not exist.

    Spark workers cannot look up connections. So its pickle contains them, with passwords, the keys of the logs and the
    secrets of masks; it is sent on Spark's own channels only. The repr has no secrets.
    """

    pipeline: Pipeline
    lookup: ConnectionLookup = field(repr=False)
    answer_limits: AnswerLimits = RUN_ANSWER_LIMITS

    @cached_property
    def mysql(self) -> MysqlConnection:
        """The connection to the source: of `source_hosts` the first that can be reached, for all sessions of this
        value. Raises what `source_hosts` raises, and with several hosts what `first_reachable` raises."""
        return first_reachable(self.source_hosts)

    @cached_property
    def source_hosts(self) -> tuple[MysqlConnection, ...]:
        """The connections to the source's hosts, in the order in which they are tried; usually one.

        Raises SettingsError for a connection that does not exist or is wrong, and for an invalid site's file.
        """
        connection_id = self.pipeline.source.connection
        return _hosts(MysqlConnection.all_from_uri, connection_id, self.lookup, self.answer_limits)

    @cached_property
    def kafka(self) -> KafkaConnection:
        """The connection to the Kafka cluster."""
        from changefeed.kafka.connection import KafkaConnection
        from changefeed.kafka.log_keys import LogKeys

        connection_id = self.pipeline.kafka.connection
        uri, source = self.lookup(connection_id), load_site().password_source(connection_id)
        seconds = self.answer_limits.connect_seconds + (source.timeout_seconds if source is not None else 0)
        with _name_connection(connection_id):
            reached = KafkaConnection(*kafka_parts(uri), timeout_seconds=seconds, password_source=source)
        return replace(reached, log_keys=LogKeys(self.pipeline.commit_log.keys(self.lookup)))

    @cached_property
    def registry(self) -> Registry | None:
        """The schema registry of the pipeline's formats; None if no format uses one."""
        connection_id = self.routes.registry
        if connection_id is None:
            return None
        from changefeed.kafka.schema_registry.client import Registry
        from changefeed.kafka.schema_registry.connection import RegistryConnection

        uri, source = self.lookup(connection_id), load_site().password_source(connection_id)
        with _name_connection(connection_id):
            reached = RegistryConnection.from_uri(uri, self.answer_limits)
        return Registry(replace(reached, password_source=source))

    def schema_ids(self, known: KnownIds) -> Subjects | None:
        """The ids of the schemas in the pipeline's topics; ids in ``known`` need no request. None without a
        registry."""
        if self.registry is None:
            return None
        from changefeed.kafka.schema_registry.subjects import Subjects

        pipeline, routes = self.pipeline, self.routes

        def topic_of(database: str, table: str) -> str:
            route = routes.of(database, table)
            if route is None:
                raise SettingsError(f"{database}.{table} is left out of pipeline {pipeline.name!r}: it has no topic")
            return route.topic

        statements_topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
        return Subjects(self.registry, topic_of, statements_topic, known, self.exemptions)

    @property
    def exemptions(self) -> Exemptions | None:
        """The `Exemptions` that register schemas against their subject's compatibility level; None if such schemas fail
        the run."""
        if self.registry is None or not self.routes.registers_incompatible:
            return None
        from changefeed.kafka.schema_registry.exemptions import Exemptions

        return Exemptions(self.registry, f"changefeed.{self.pipeline.name}.compatibility")

    @cached_property
    def routes(self) -> Routes:
        """The topics of the changes of the pipeline's tables."""
        return compile_routes(self.pipeline)

    @cached_property
    def column_rules(self) -> ColumnRules:
        """The columns that the pipeline leaves out and masks, with the secrets of the masks."""
        return self.pipeline.column_rules(self.lookup)

    @cached_property
    def transform_calls(self) -> tuple[TransformCall, ...]:
        """The functions that the pipeline's changes go through, with their secrets."""
        return self.pipeline.transform_calls(self.lookup)

    @cached_property
    def known_heads(self) -> dict[tuple[str, FileIdentity], Head]:
        """The head of the last plan, by server and file; see `pipeline.known_head`."""
        return {}

    def forget_source(self) -> None:
        """Look the source up again at its next use: of several hosts, another one may answer then."""
        self.__dict__.pop("mysql", None)

    def session(self) -> AbstractContextManager[Session]:
        """A connection to the source, for queries; see `kept_session`."""
        return kept_session(self.mysql)

    @contextmanager
    def session_on(self, server_uuid: str) -> Iterator[Session]:
        """A connection to the source, whose server has been checked to have ``server_uuid``; for all queries of a
        window.

        Raises SourceUnavailableError if the connection leads to another server, and what `kept_session` raises.
        """
        with self.session() as session:
            check_server(session, server_uuid)
            yield session

    @property
    def server_ids(self) -> ServerIds:
        """The server ids of the tasks that read the pipeline's windows."""
        return ServerIds(self.pipeline.name, self.pipeline.source.server_id_range)

    def commit_log(self, identity: str | None = None) -> CommitLog:
        """The commit log, to read: of ``identity``, such as a backfill's, by default of the pipeline's windows."""
        from changefeed.kafka.commit_log.log import CommitLog

        return CommitLog(self.kafka, commit_log_topic(self.pipeline.name), identity or self.pipeline.name)

    def schema_log(self) -> SchemaLog:
        """The pipeline's schema history in Kafka."""
        from changefeed.kafka.schema_log import SchemaLog

        return SchemaLog(self.kafka, schema_history_topic(self.pipeline.name), self.pipeline.name)

    def lease(
        self,
        identity: str | None = None,
        *,
        brief: bool = False,
        timeout_seconds: float = 0.0,
        claim_keys: LogKeys | None = None,
    ) -> Lease:
        """The lease of one run on ``identity``, not entered yet, whose claims have ``claim_keys``, by default those of
        the pipeline; see `Lease`."""
        from changefeed.kafka.lease import Lease

        topic, seconds = commit_log_topic(self.pipeline.name), self.pipeline.kafka.lease_seconds
        identity = identity or self.pipeline.name
        return Lease(
            self.kafka,
            topic,
            identity,
            seconds,
            brief=brief,
            timeout_seconds=timeout_seconds,
            transaction_seconds=self.pipeline.kafka.transaction_timeout_seconds,
            claims=None if claim_keys is None else replace(self.kafka, log_keys=claim_keys),
        )

    def lease_between_windows(self, claim_keys: LogKeys | None = None) -> Lease:
        """The lease for an operation that waits for the current window of a continuous run. A run of a pipeline without
        `windows` refuses it; see `Lease`."""
        return self.lease(timeout_seconds=self.window_seconds, claim_keys=claim_keys)

    @property
    def window_seconds(self) -> float:
        """How long an operation waits for a window of a run: 0 without `windows`, as the run ends later."""
        return 0.0 if self.pipeline.windows is None else WINDOW_SECONDS

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
    """Create the topic of the pipeline's commit log, if it is missing. Raises what `ensure_topics` raises."""
    from changefeed.kafka.topics import commit_log_settings, ensure_topics

    topics = connections.pipeline.topics
    required = {commit_log_topic(connections.pipeline.name): commit_log_settings(topics.replication_factor)}
    ensure_topics(connections.kafka, required, create=topics.create)


def mysql_connection(
    connection_id: str, lookup: ConnectionLookup, answer_limits: AnswerLimits = RUN_ANSWER_LIMITS
) -> MysqlConnection:
    """The MySQL connection of an id to one host, with what returns its passwords if the site's file names that.

    Raises SettingsError for a connection that does not exist, is wrong or has several hosts, and for an invalid site's
    file.
    """
    (connection,) = _hosts(lambda *uri: (MysqlConnection.from_uri(*uri),), connection_id, lookup, answer_limits)
    return connection


def _hosts(
    parse: Callable[[str, AnswerLimits], tuple[MysqlConnection, ...]],
    connection_id: str,
    lookup: ConnectionLookup,
    answer_limits: AnswerLimits,
) -> tuple[MysqlConnection, ...]:
    uri = lookup(connection_id)
    with _name_connection(connection_id):
        hosts = parse(uri, answer_limits)
    source = load_site().password_source(connection_id)
    return tuple(replace(host, password_source=source) for host in hosts)


@contextmanager
def _name_connection(connection_id: str) -> Iterator[None]:
    """Add the connection's id to errors in its URI."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"connection {connection_id!r}: {error}") from None


def _no_lookup(connection_id: str) -> str:
    raise SettingsError(f"connection {connection_id!r} cannot be looked up in a Spark worker, which has no connections")
