"""The topics that a pipeline needs: the topics of the captured tables, and the topics of its state."""

from __future__ import annotations

from collections.abc import Mapping

from changefeed.errors import TopicError
from changefeed.kafka.checkpoint_log import checkpoint_settings
from changefeed.kafka.schema_log import schema_history_settings
from changefeed.kafka.topics import TopicSettings, commit_log_settings
from changefeed.model.topic_name import (
    checkpoint_topic,
    commit_log_topic,
    heartbeat_topic,
    schema_changes_topic,
    schema_history_topic,
)
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import TableRoute, compile_routes
from changefeed.source.mysql.catalog import table_names
from changefeed.source.mysql.session import Session


def captured_routes(
    pipeline: Pipeline, session: Session, *, sequences: bool = True
) -> dict[tuple[str, str], TableRoute]:
    """The route of each captured table that the source has now, by (database, table).

    Without ``sequences`` MariaDB's sequences are left out: their records are the numbers that they have reached, not
    rows. Raises TopicError if two tables would share a topic that they may not share.
    """
    return compile_routes(pipeline).route_tables(table_names(session, sequences=sequences))


def table_topics(pipeline: Pipeline, session: Session, *, sequences: bool = True) -> dict[tuple[str, str], str]:
    """The topic of each captured table; arguments and errors are those of `captured_routes`."""
    routes = captured_routes(pipeline, session, sequences=sequences)
    return {name: route.topic for name, route in routes.items()}


def state_topics(pipeline: Pipeline) -> dict[str, TopicSettings]:
    """The topics of the pipeline's own state; Kafka must not delete their records."""
    replication_factor = pipeline.topics.replication_factor
    topics = {
        commit_log_topic(pipeline.name): commit_log_settings(replication_factor),
        schema_history_topic(pipeline.name): schema_history_settings(replication_factor),
    }
    if pipeline.checkpoint.store == "kafka":
        topics[checkpoint_topic(pipeline.name)] = checkpoint_settings(replication_factor)
    return topics


def heartbeat_settings(pipeline: Pipeline) -> dict[str, TopicSettings]:
    """The topic of the pipeline's heartbeat; none if it writes none."""
    settings = TopicSettings(1, pipeline.topics.replication_factor, {"cleanup.policy": "compact"})
    return {heartbeat_topic(pipeline.name): settings} if pipeline.heartbeat else {}


def required_topics(pipeline: Pipeline, routes: Mapping[tuple[str, str], TableRoute]) -> dict[str, TopicSettings]:
    """All topics that must exist before a window is published, and the settings for creating missing ones; ``routes``
    are the `captured_routes`."""
    replication_factor = pipeline.topics.replication_factor
    required = {route.topic: TopicSettings(*route.creation_settings) for route in routes.values()}
    required |= state_topics(pipeline)
    if pipeline.publish_ddl != "off":
        required[schema_changes_topic(pipeline.name, pipeline.topics.suffix)] = TopicSettings(1, replication_factor)
    if (topic := compile_routes(pipeline).transaction_topic) is not None:
        if topic in required:
            raise TopicError(
                f"topic {topic!r} is that of the records of transactions, and changes of a table would go to it, too: "
                "give the format another `topic.transaction`, or the table another topic"
            )
        required[topic] = TopicSettings(1, replication_factor)
    if (topic := pipeline.dead_letter_topic) is not None:
        required[topic] = TopicSettings(1, replication_factor)
    return required | heartbeat_settings(pipeline)
