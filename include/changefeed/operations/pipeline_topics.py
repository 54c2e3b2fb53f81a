"""The topics that a pipeline publishes to: by its settings, and by its commit log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from changefeed.errors import TopicError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import partition_counts
from changefeed.model.manifest import Manifest
from changefeed.model.topic_name import check_published_to, heartbeat_topic, schema_changes_topic
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

_WINDOWS = 1000
"""The number of windows whose topics are read, so that a log of years costs no more."""

Kind = Literal["table", "schema changes", "dead letters", "transactions", "heartbeat", "published"]


@dataclass(frozen=True)
class PipelineTopic:
    """A topic of a pipeline. ``tables`` are the "database.table" whose rows it has; some may be dropped.

    ``kind`` is `published` if no setting names the topic: an outbox, a function or former settings chose it. Other
    programs may publish to such a topic, too.
    """

    topic: str
    kind: Kind
    tables: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the REST API."""
        return {"topic": self.topic, "kind": self.kind, "tables": list(self.tables)}


def pipeline_topics(
    pipeline: Pipeline, captured: Mapping[str, str], state: CommitLogState
) -> Mapping[str, PipelineTopic]:
    """The topics of ``pipeline`` by name, whether they exist or not. No other topic may be shown as one of it.

    ``captured`` has the topic of each currently captured "database.table", ``state`` is the state of the commit log,
    which has the dropped tables and the topics of kind `published`.
    """
    tables = {**_topics_of_tables(pipeline, _published_tables(state)), **captured}
    topics = dict.fromkeys([*captured.values(), *tables.values()])
    of_tables = {
        topic: PipelineTopic(topic, "table", tuple(sorted(name for name, its in tables.items() if its == topic)))
        for topic in topics
    }
    named = {topic: PipelineTopic(topic, kind) for topic, kind in _named_topics(pipeline)}
    published = (topic for topic in published_topics(state) if _may_be_published_to(topic, pipeline.name))
    chosen = {topic: PipelineTopic(topic, "published") for topic in published}
    return {**of_tables, **{topic: one for topic, one in (chosen | named).items() if topic not in of_tables}}


def published_topics(state: CommitLogState) -> list[str]:
    """The topics of the last windows and of unfinished ones. A seek forgets the progress, but not the windows."""
    sealed = [receipt.topic for manifest in last_windows(state) for receipt in manifest.topics]
    return list(dict.fromkeys([*(topic for topic, _ in state.progress), *sealed]))


def dropped_tables(pipeline: Pipeline, kafka: KafkaConnection, names: Sequence[str]) -> dict[str, str]:
    """The topics of those of ``names`` (DATABASE.TABLE) that the pipeline captured: its patterns match the name, and
    the topic exists."""
    topics = _topics_of_tables(pipeline, names)
    existing = partition_counts(kafka, list(topics.values())) if topics else {}
    return {name: topic for name, topic in topics.items() if topic in existing}


def last_windows(state: CommitLogState) -> list[Manifest]:
    """The manifests of the last windows in the commit log, in order."""
    return [state.seals[number] for number in list(state.seals)[-_WINDOWS:]]


def _topics_of_tables(pipeline: Pipeline, names: Iterable[str]) -> dict[str, str]:
    routes = compile_routes(pipeline)
    topics = {}
    for name in names:
        database, _, table = name.partition(".")
        if (route := routes.of(database, table)) is not None:
            topics[name] = route.topic
    return topics


def _published_tables(state: CommitLogState) -> list[str]:
    return list(dict.fromkeys(name for manifest in last_windows(state) for name in manifest.rows))


def _named_topics(pipeline: Pipeline) -> Iterator[tuple[str, Kind]]:
    if pipeline.publish_ddl != "off":
        yield schema_changes_topic(pipeline.name, pipeline.topics.suffix), "schema changes"
    if pipeline.dead_letter_topic is not None:
        yield pipeline.dead_letter_topic, "dead letters"
    if (topic := compile_routes(pipeline).transaction_topic) is not None:
        yield topic, "transactions"
    if pipeline.heartbeat:
        yield heartbeat_topic(pipeline.name), "heartbeat"


def _may_be_published_to(topic: str, pipeline: str) -> bool:
    try:
        check_published_to(topic, pipeline)
    except TopicError:
        return False
    return True
