"""Failover: the position found again by GTID set on another server, and what the old one's window had published."""

from __future__ import annotations

import logging

from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.errors import AccountingError, BinlogGoneError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Failover, Mark, Window, source_and_number
from changefeed.pipeline.connections import PipelineConnections
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import Head

_log = logging.getLogger(__name__)


def position_on_new_server(checkpoint: Checkpoint, session: Session, uuid: str, head: Head) -> ResumePoint:
    """Where the server behind ``session`` has the first transaction that ``checkpoint`` lacks.

    Raises BinlogGoneError where that is not known, or where the new server lacks what was published.
    """
    what = (
        f"checkpoint {checkpoint.coordinates} of pipeline {checkpoint.pipeline!r} belongs to server "
        f"{checkpoint.server_uuid}, found server {uuid}"
    )
    if not checkpoint.gtids or not head.gtids:
        raise BinlogGoneError(
            f"{what}: the same coordinates mean other changes there, and without GTIDs the position cannot be found "
            "again. Point the connection at the old server, or seek the pipeline to where it should resume on the new "
            "one; with gtid_mode=ON a failover needs neither."
        )
    lost = GtidSet.parse(checkpoint.gtids).subtract(GtidSet.parse(head.gtids))
    if lost:
        raise BinlogGoneError(
            f"{what}, which lacks transactions {lost} that are in Kafka already: the new server is behind, or they "
            "were lost in the failover. If it is a replica that catches up, run again later. If they are lost, "
            "consumers have changes that the source does not have any more: mend that there, and seek the pipeline to "
            "where it should resume."
        )
    try:
        resume = Finder(ServerBinlogs(session)).after_gtids(GtidSet.parse(checkpoint.gtids))
    except BinlogGoneError as error:
        raise BinlogGoneError(
            f"{what}: {error}. Compare the source with what is in Kafka, mend what was lost there, and seek the "
            "pipeline to where it should resume."
        ) from error
    _log.warning("%s: the position was found again by GTID set at %s there", what, resume)
    return resume


def marks_of(connections: PipelineConnections, window: Window, state: CommitLogState) -> tuple[Mark, ...]:
    """How far the old server's unfinished windows gave each topic-partition; () where none was begun.

    Called behind the fence. They are kept with the window that is begun, as the progress records they come from are
    overwritten by those of the new server; ``window`` gets those that it was begun with. Raises AccountingError where
    it is not known exactly; then nothing is published.
    """
    failover = window.failover
    if failover is None:
        return ()
    begun = state.begun_record(window)
    if begun is not None:
        return begun.marks
    ahead = {partition: progress for partition, progress in state.progress.items() if progress.window > failover.window}
    if ahead:
        _check_exact(connections, window, failover, ahead, state)
        _log.warning(
            "window %d was begun on server %s: %d topic-partitions had got a part of it, which is skipped by GTID",
            failover.window + 1,
            failover.from_uuid,
            len(ahead),
        )
    return tuple(
        Mark(topic, partition, progress.gtid, progress.gtid_messages) for (topic, partition), progress in ahead.items()
    )


def _check_exact(
    connections: PipelineConnections,
    window: Window,
    failover: Failover,
    ahead: dict[TopicPartition, Progress],
    state: CommitLogState,
) -> None:
    """Raises AccountingError unless the GTIDs alone show what the old server's windows have published."""
    published = GtidSet.parse(failover.published)
    begun = [*state.begun.values(), *(manifest.window for manifest in state.seals.values())]
    old = [each for each in begun if each.number > failover.window and each.server_uuid == failover.from_uuid]
    given = {progress.gtid for progress in ahead.values()}
    ends = GtidSet().union(*(GtidSet.parse(each.head_gtids) for each in old), *map(GtidSet.parse, given))
    sources = {source for source, _ in ends.subtract(published).intervals}
    reason = None
    if {progress.source for progress in ahead.values()} != {failover.from_uuid}:
        reason = "a third server had begun a window too"
    elif "" in given or not old or any(source_and_number(gtid)[0] not in sources for gtid in given):
        reason = "its transactions have no GTIDs, or its commit log does not say where it was to end"
    elif len(sources) > 1:
        reason = f"its transactions are of several sources ({', '.join(sorted(sources))}), which have no common order"
    elif fault := _lacking(connections, window, given):
        reason = f"the new server {fault}; what is in Kafka already has to be there, in the same order"
    if reason:
        raise AccountingError(
            f"window {failover.window + 1} of pipeline {window.pipeline!r} was published in part from server "
            f"{failover.from_uuid}, and cannot be ended on server {window.server_uuid} exactly once: {reason}. Nothing "
            "was published. Point the connection at the old server again and run, or seek the pipeline to where it "
            "should resume, which may repeat changes."
        )


def others_in_place(connections: PipelineConnections, window: Window, gtids: str) -> str:
    """How MariaDB's binlog shows that the server of ``window``, the first one after a failover, lacks some of ``gtids``
    and has others of the same numbers; '' where it has them. Those before the window were looked for already."""
    behind = GtidSet.parse(window.start_gtids)
    wanted = {gtid for gtid in GtidSet.parse(gtids).mariadb_gtids if not behind.contains(GtidSet.parse(gtid))}
    return _lacking(connections, window, wanted) if wanted else ""


def _lacking(connections: PipelineConnections, window: Window, given: set[str]) -> str:
    """How the new server's binlog shows that it lacks some of the transactions ``given``, '' where it has them."""
    head = GtidSet.parse(window.head_gtids)
    if lost := sorted(gtid for gtid in given if not head.contains(GtidSet.parse(gtid))):
        return f"lacks transactions {', '.join(lost)}"
    if not head.mariadb_gtids:
        return ""
    with connections.session_on(window.server_uuid) as session:
        start = ResumePoint(window.start, window.start_gtids)
        return Finder(ServerBinlogs(session)).lacks(given, start)
