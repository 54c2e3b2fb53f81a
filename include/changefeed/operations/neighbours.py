"""Compares the pipelines of one folder: no two may write the same topics or use the same server_ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from changefeed.errors import ChangefeedError, TopicError
from changefeed.model.connection import ConnectionLookup
from changefeed.operations.finding import Finding, fail, ok, warn
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.topics import table_topics
from changefeed.settings.pipeline import Pipeline

_SHOWN = 3


class Neighbours:
    """All pipelines of a folder with their connections. The topics of each pipeline are read once.

    If the connections of a pipeline are not known here, or its source does not answer, it is compared as far as
    possible: for example its server_ids, but not its topics.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        lookup: ConnectionLookup,
        connect: Callable[[Pipeline, ConnectionLookup], PipelineConnections] = PipelineConnections,
    ) -> None:
        self._all = [connect(pipeline, lookup) for pipeline in pipelines.values()]
        self._topics: dict[str, frozenset[str] | None] = {}

    def findings(self, connections: PipelineConnections) -> Iterator[Finding]:
        """Yield a line about the comparison, and an error for each pipeline that conflicts with this one."""
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
        """The topics of the pipeline's tables, read once; None if its source cannot be read."""
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
        ours, theirs = ({(host.host, host.port) for host in each.source_hosts} for each in (one, other))
        return not ours.isdisjoint(theirs)
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
        "each change is written twice"
        if _same_source(one, other)
        else "rows of two servers with the same key are one row to whoever reads them"
    )
    return TopicError(
        f"pipelines {one.pipeline.name!r} and {other.pipeline.name!r} both write {shown}: {means}. Give one of "
        "them other tables, or a topics.template of its own, such as '{pipeline}.{database}.{table}'."
    )
