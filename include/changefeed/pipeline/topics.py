"""Which topics a pipeline needs: those of the tables that it captures now, and those of its own."""

from __future__ import annotations

from changefeed.errors import TopicError
from changefeed.kafka.schema_log import schema_history_settings
from changefeed.kafka.topics import TopicSettings, commit_log_settings
from changefeed.model.topic_name import commit_log_topic, schema_changes_topic, schema_history_topic
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import TableRoute, compile_routes
from changefeed.source.mysql.catalog import table_names
from changefeed.source.mysql.session import Session


def captured_routes(
    pipeline: Pipeline, session: Session, *, sequences: bool = True
) -> dict[tuple[str, str], TableRoute]:
    """The route of each (database, table) that the source has now and the pipeline captures, with or without MariaDB's
    ``sequences``: a record of one is a number that it has come to, and not a row.

    Raises TopicError where two tables would share a topic and may not.
    """
    return compile_routes(pipeline).of_all(table_names(session, sequences=sequences))


def table_topics(pipeline: Pipeline, session: Session, *, sequences: bool = True) -> dict[tuple[str, str], str]:
    """The topic of each captured table; as `captured_routes`."""
    routes = captured_routes(pipeline, session, sequences=sequences)
    return {name: route.topic for name, route in routes.items()}


def wanted_topics(pipeline: Pipeline, session: Session) -> dict[str, TopicSettings]:
    """All topics to be there before a window is published, and how they are made where they are missing."""
    replication_factor = pipeline.topics.replication_factor
    routes = captured_routes(pipeline, session).values()
    wanted = {route.topic: TopicSettings(*route.made_as) for route in routes}
    wanted[commit_log_topic(pipeline.name)] = commit_log_settings(replication_factor)
    wanted[schema_history_topic(pipeline.name)] = schema_history_settings(replication_factor)
    if pipeline.publish_ddl != "off":
        wanted[schema_changes_topic(pipeline.name, pipeline.topics.suffix)] = TopicSettings(1, replication_factor)
    if (topic := compile_routes(pipeline).transaction_topic) is not None:
        if topic in wanted:
            raise TopicError(
                f"topic {topic!r} is that of the records of transactions, and changes of a table would go to it, too: "
                "give the format another `topic.transaction`, or the table another topic"
            )
        wanted[topic] = TopicSettings(1, replication_factor)
    if (topic := pipeline.dead_letter_topic) is not None:
        wanted[topic] = TopicSettings(1, replication_factor)
    return wanted
