"""Check that a planned window may begin: its place in the commit log, its settings and its topics.

`changefeed check` calls the same checks before a run, with the same messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import BegunRecord, DependencyRecord
from changefeed.kafka.topics import TopicLimits, topic_limits
from changefeed.kafka.window_topics import check_same_topics, with_begun_partitions
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.failover import others_in_place
from changefeed.pipeline.open_windows import check_next
from changefeed.settings.message_rules import check_same_rules, check_snapshot_dependency, message_rules, secrets_rule


def check_begin(connections: PipelineConnections, window: Window, state: CommitLogState) -> list[DependencyRecord]:
    """Raise an error if ``window`` may not be published now, with the current settings and the commit log's ``state``.

    Returns the records of positions that snapshots no longer depend on, which may be removed. Raises what `check_next`,
    `check_snapshot_dependency` and `check_same_rules` raise.
    """
    check_next(window, state)
    obsolete = _check_relied_records(connections, window, state)
    for earlier in find_partly_published(window, state):
        check_same_rules(window, earlier.rules, read_begin_rules(connections))
    return obsolete


def read_begin_rules(connections: PipelineConnections) -> dict[str, str]:
    """The rules that a window begins with; raises SettingsError for a secret that cannot be read."""
    return message_rules(connections.pipeline) | secrets_rule(connections.pipeline, connections.lookup)


def find_partly_published(window: Window, state: CommitLogState) -> list[BegunRecord]:
    """The begun records of partly published windows: this window, or after a failover windows of the old server."""
    published = {progress.window for progress in state.progress.values() if progress.window > window.after}
    return [begun for begun in state.of(BegunRecord) if begun.window.number in published]


def _check_relied_records(
    connections: PipelineConnections, window: Window, state: CommitLogState
) -> list[DependencyRecord]:
    """Check ``window`` against the positions that snapshots depend on; return the records that are no longer needed."""
    obsolete = []
    for dependency in state.of(DependencyRecord):
        is_other = dependency.source != window.server_uuid
        if window.failover is not None if is_other else window.start < BinlogCoordinates.parse(dependency.until):
            fault = "" if window.failover is None else others_in_place(connections, window, dependency.gtids)
            check_snapshot_dependency(window, dependency, connections.pipeline, fault)
        elif not is_other:
            obsolete.append(dependency)
    return obsolete


def check_begin_topics(
    connections: PipelineConnections,
    window: Window,
    state: CommitLogState,
    topics: Iterable[str],
    tables: Mapping[str, str] | None = None,
) -> dict[str, TopicLimits]:
    """The limits of ``topics``, and of the topics that ``window`` was begun with; these keep the number of partitions
    that they had then.

    Topics that do not exist yet are left out. Raises TopicError for a topic that was removed after messages were
    published to it, or that has fewer partitions than the window was begun with. ``tables`` are as in `topic_limits`.
    """
    names = dict.fromkeys(topics)
    begun_with = {topic for (topic, _), progress in state.progress.items() if progress.window > window.after}
    limits = topic_limits(connections.kafka, (*names, *begun_with), tables, must_exist=False)
    check_same_topics(limits, state.progress, window, names)
    return with_begun_partitions(limits, state.progress, window)
