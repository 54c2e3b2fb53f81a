"""The pipelines of one folder beside each other: no two may write the same topics or name the same server_ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from changefeed.errors import ChangefeedError, TopicError
from changefeed.model.connection import ConnectionLookup
from changefeed.operations.finding import Finding, fail, ok, warn
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.topics import table_topics
from changefeed.settings.pipeline import Pipeline

_SHOWN = 3


class Neighbours:
    """All pipelines of a folder with their connections. Each is asked once for its topics, however many are compared.

    A pipeline whose connections are not known here, or whose source does not answer, is compared as far as can be.
    """

    def __init__(self, pipelines: Mapping[str, Pipeline], lookup: ConnectionLookup) -> None:
        self._all = [PipelineConnections(pipeline, lookup) for pipeline in pipelines.values()]
        self._topics: dict[str, frozenset[str] | None] = {}

    def findings(self, connections: PipelineConnections) -> Iterator[Finding]:
        """A line about what was compared, and an error for each other pipeline that gets into this one's way."""
        others = [other for other in self._all if other.pipeline.name != connections.pipeline.name]
        unknown = []
        for other in others:
            if _same_source(connections, other):
                try:
                    connections.server_ids.check_disjoint(other.server_ids)
                except ChangefeedError as error:
                    yield fail(error)
            if not _same_cluster(connections, other):
                continue
            own, its = self._topics_of(connections), self._topics_of(other)
            if own is None or its is None:
                unknown.append(other.pipeline.name)
            elif shared := sorted(own & its):
                yield fail(_shared_topics(connections, other, shared))
        if others:
            compared = len(others) - len(unknown)
            rest = f"; their topics are not known here: {', '.join(unknown)}" if unknown else ""
            yield (warn if unknown else ok)(f"compared with {compared} other pipeline{'s' * (compared != 1)}{rest}")

    def _topics_of(self, connections: PipelineConnections) -> frozenset[str] | None:
        """The topics of the pipeline's tables; None where its source cannot say."""
        name = connections.pipeline.name
        if name not in self._topics:
            try:
                with connections.session() as session:
                    self._topics[name] = frozenset(table_topics(connections.pipeline, session).values())
            except ChangefeedError:
                self._topics[name] = None
        return self._topics[name]


def _same_source(one: PipelineConnections, other: PipelineConnections) -> bool:
    if one.pipeline.source.connection == other.pipeline.source.connection:
        return True
    try:
        return (one.mysql.host, one.mysql.port) == (other.mysql.host, other.mysql.port)
    except ChangefeedError:
        return False  # a connection that is not known here


def _same_cluster(one: PipelineConnections, other: PipelineConnections) -> bool:
    if one.pipeline.kafka.connection == other.pipeline.kafka.connection:
        return True
    try:
        return not set(one.kafka.bootstrap.split(",")).isdisjoint(other.kafka.bootstrap.split(","))
    except ChangefeedError:
        return False


def _shared_topics(one: PipelineConnections, other: PipelineConnections, topics: list[str]) -> TopicError:
    shown = ", ".join(map(repr, topics[:_SHOWN])) + (f" and {len(topics) - _SHOWN} more" if topics[_SHOWN:] else "")
    means = (
        "each change is there twice"
        if _same_source(one, other)
        else "rows of two servers with the same key are one row to whoever reads them"
    )
    return TopicError(
        f"pipelines {one.pipeline.name!r} and {other.pipeline.name!r} both write {shown}: {means}. Give one of "
        "them other tables, or a topics.template of its own, such as '{pipeline}.{database}.{table}'."
    )
