"""Which topics a pipeline needs: one for each table that it captures now, and those of its own."""

from __future__ import annotations

from changefeed.kafka.schema_log import schema_changes_topic, schema_history_settings, schema_history_topic
from changefeed.kafka.topics import (
    TopicSettings,
    commit_log_settings,
    commit_log_topic,
    dead_letter_topic,
    topic_names,
)
from changefeed.mysql.catalog import table_names
from changefeed.mysql.session import Session
from changefeed.pipelines.pipeline import Pipeline


def captured_tables(pipeline: Pipeline, session: Session) -> list[tuple[str, str]]:
    """(database, table) of what the source has now and the pipeline's patterns take."""
    return [name for name in table_names(session) if pipeline.tables.matches(*name)]


def table_topics(pipeline: Pipeline, session: Session) -> dict[tuple[str, str], str]:
    """The topic of each captured table; raises TopicError where two tables would share one."""
    return topic_names(pipeline.topics.template, captured_tables(pipeline, session), pipeline.name)


def wanted_topics(pipeline: Pipeline, session: Session) -> dict[str, TopicSettings]:
    """All topics to be there before a window is published, and how they are made where they are missing."""
    replication_factor = pipeline.topics.replication_factor
    wanted = dict.fromkeys(table_topics(pipeline, session).values(), table_topic_settings(pipeline))
    wanted[commit_log_topic(pipeline.name)] = commit_log_settings(replication_factor)
    wanted[schema_history_topic(pipeline.name)] = schema_history_settings(replication_factor)
    if pipeline.publish_ddl != "off":
        wanted[schema_changes_topic(pipeline.name, pipeline.topics.suffix)] = TopicSettings(1, replication_factor)
    if pipeline.kafka.on_bad_record == "dead_letter":
        wanted[dead_letter_topic(pipeline.name)] = TopicSettings(1, replication_factor)
    return wanted


def table_topic_settings(pipeline: Pipeline) -> TopicSettings:
    """How a table's topic is made where it is missing."""
    topics = pipeline.topics
    return TopicSettings(topics.partitions, topics.replication_factor, topics.configs)
