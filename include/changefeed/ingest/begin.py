"""What may keep a window from being begun though it could be planned: its place in the log, its settings, its topics.

`changefeed check` asks the same questions before a run, and says the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import BegunRecord, ReliedRecord
from changefeed.kafka.topics import TopicLimits, partition_counts, topic_limits
from changefeed.kafka.window_topics import as_begun, check_same_topics
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.failover import others_in_place
from changefeed.pipeline.open_windows import check_next
from changefeed.settings.message_rules import check_relied_on, check_same_rules, message_rules, secrets_rule


def check_begin(connections: PipelineConnections, window: Window, state: CommitLogState) -> list[ReliedRecord]:
    """Raises unless ``window`` may be published now, by the pipeline's settings as they are, after what ``state`` says.

    Returns what snapshots rely on no more, which may be forgotten. Raises as `check_next`, `check_relied_on` and
    `check_same_rules` do.
    """
    check_next(window, state)
    passed = _check_relied(connections, window, state)
    for earlier in begun_in_part(window, state):
        check_same_rules(window, earlier.rules, begin_rules(connections))
    return passed


def begin_rules(connections: PipelineConnections) -> dict[str, str]:
    """What a window is begun with; raises SettingsError for a secret that cannot be had."""
    return message_rules(connections.pipeline) | secrets_rule(connections.pipeline, connections.lookup)


def begun_in_part(window: Window, state: CommitLogState) -> list[BegunRecord]:
    """The begins of which a part is in Kafka: this window's, or that of the old server, which a failover ends."""
    given = {progress.window for progress in state.progress.values() if progress.window > window.after}
    return [begun for begun in state.of(BegunRecord) if begun.window.number in given]


def _check_relied(connections: PipelineConnections, window: Window, state: CommitLogState) -> list[ReliedRecord]:
    """``window`` is what snapshots relied on; returns those that rely on no window any more."""
    passed = []
    for relied in state.of(ReliedRecord):
        is_other = relied.source != window.server_uuid
        if window.failover is not None if is_other else window.start < BinlogCoordinates.parse(relied.until):
            fault = "" if window.failover is None else others_in_place(connections, window, relied.gtids)
            check_relied_on(window, relied, connections.pipeline, fault)
        elif not is_other:
            passed.append(relied)
    return passed


def begin_topics(
    connections: PipelineConnections,
    window: Window,
    state: CommitLogState,
    topics: Iterable[str],
    tables: Mapping[str, str] | None = None,
) -> dict[str, TopicLimits]:
    """What ``topics`` take, and those that ``window`` was begun with, with the partitions that they had then.

    Topics that are not there yet are left out. Raises TopicError for one that was removed since it was given messages,
    or has fewer partitions than the window was begun with. ``tables`` are as in `topic_limits`.
    """
    names = dict.fromkeys(topics)
    begun_with = {topic for (topic, _), progress in state.progress.items() if progress.window > window.after}
    there = partition_counts(connections.kafka, dict.fromkeys((*names, *begun_with)))
    limits = topic_limits(connections.kafka, there, tables)
    check_same_topics(limits, state.progress, window, names)
    return as_begun(limits, state.progress, window)
