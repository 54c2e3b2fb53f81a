"""Failover: the position found again by GTID set on another server, and what the old one's window had published."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.errors import AccountingError, BinlogGoneError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.model.binlog_order import UUID_LENGTH, BinlogOrder, gtid_of
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Failover, Mark, Window
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
    published = GtidSet.parse(checkpoint.gtids)
    finder = Finder(ServerBinlogs(session))
    try:
        resume = finder.after_gtids(published)
    except BinlogGoneError as error:
        raise BinlogGoneError(
            f"{what}: {error}. Compare the source with what is in Kafka, mend what was lost there, and seek the "
            "pipeline to where it should resume."
        ) from error
    nameless = None if published.mariadb_gtids else finder.nameless_before(resume.coordinates, published)
    if nameless is not None:
        raise BinlogGoneError(
            f"{what}, where the transaction at {nameless} has no GTID (gtid_mode is or was not ON), and is before "
            f"{resume.coordinates}, the first one that is not among {checkpoint.gtids}: whether it was published "
            "already is not known. Nothing was published. Point the connection at the old server again, run until "
            "nothing is new, and fail over when both servers have gtid_mode=ON and all transactions without a GTID are "
            "in older binlog files (FLUSH BINARY LOGS); or seek the pipeline to where it should resume, which may "
            "repeat changes."
        )
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
        Mark(topic, partition, progress.window, progress.gtid, progress.gtid_messages, progress.given)
        for (topic, partition), progress in ahead.items()
    )


def _check_exact(
    connections: PipelineConnections,
    window: Window,
    failover: Failover,
    ahead: dict[TopicPartition, Progress],
    state: CommitLogState,
) -> None:
    """Raises AccountingError unless it is known which transactions the old server's windows have published, and the
    new server has them."""
    places = {
        partition: state.orders[progress.window].place(progress.gtid)
        for partition, progress in ahead.items()
        if progress.gtid and progress.window in state.orders
    }
    reason = None
    if {progress.source for progress in ahead.values()} != {failover.from_uuid}:
        reason = "a third server had begun a window too"
    elif any(not progress.gtid for progress in ahead.values()):
        reason = "its transactions have no GTIDs"
    elif any(places.get(partition) is None for partition in ahead):
        reason = (
            "the commit log does not have the order of its transactions, which is too long where GTIDs are of many "
            "sources or their numbers do not rise"
        )
    elif fault := _lacking(connections, window, _given_gtids(ahead, places, state)):
        reason = f"the new server {fault}; what is in Kafka already has to be there"
    if reason:
        latest = max(ahead.values(), key=lambda progress: progress.window).source
        raise AccountingError(
            f"window {failover.window + 1} of pipeline {window.pipeline!r} was published in part from server "
            f"{latest}, and cannot be ended on server {window.server_uuid} exactly once: {reason}. Nothing was "
            f"published. Point the connection at server {latest} again and run, or seek the pipeline to where it "
            "should resume, which may repeat changes."
        )


def _given_gtids(
    ahead: dict[TopicPartition, Progress], places: Mapping[TopicPartition, int | None], state: CommitLogState
) -> set[str]:
    """The transactions of the old server's windows up to the last that any topic-partition was given a message of."""
    ends: dict[int, int] = {}
    for partition, progress in ahead.items():
        ends[progress.window] = max(ends.get(progress.window, 0), (places[partition] or 0) + 1)
    return {
        gtid_of(source, number)
        for window, end in ends.items()
        for source, first, last in state.orders[window].before(end)
        for number in range(first, last + 1)
    }


def check_rising(window: Window, order: BinlogOrder) -> None:
    """Raises AccountingError where numbers of one of MariaDB's domains do not rise in ``order``, the transactions of
    ``window``, the first one after a failover: whether one was published before it is known by its number."""
    lasts = dict(GtidSet.parse(window.start_gtids).intervals)
    known = {domain: runs[-1][1] for domain, runs in lasts.items()}
    for source, first, last in order.runs:
        domain, separator, _ = source.partition("-")
        if len(source) >= UUID_LENGTH or not separator:
            continue
        if first <= known.get(domain, 0):
            raise AccountingError(
                f"binlog {window.start} to {window.head} of server {window.server_uuid} has transaction "
                f"{gtid_of(source, first)} after number {known[domain]} of domain {domain}: with gtid_strict_mode=OFF "
                "numbers need not rise (SET gtid_seq_no, or a replica that logs transactions of its own), and after a "
                f"failover it is not known then which of them pipeline {window.pipeline!r} has published. Nothing was "
                "published. Seek the pipeline to where it should resume, which may repeat changes."
            )
        known[domain] = last


def check_ordered(window: Window, tables: Collection[str]) -> None:
    """Raises AccountingError where ``tables`` of ``window``, of which the old server gave a part, have rows that the
    new one may have in another order: which of them were given is known by their order alone."""
    if tables:
        named = ", ".join(sorted(tables)[:5]) + (f" and {len(tables) - 5} others" if len(tables) > 5 else "")
        raise AccountingError(
            f"window {window.number} of pipeline {window.pipeline!r} ends one that another server published in part, "
            f"and has updated or deleted rows of {named}, without a primary key: MySQL's replicas log such rows in "
            "another order than their source (they look for them by HASH_SCAN), so which of them are in Kafka is not "
            "known. Nothing was published. Point the connection at the old server again and run, or seek the pipeline "
            "to where it should resume, which may repeat changes; a primary key, also an invisible one "
            "(sql_generate_invisible_primary_key), keeps the order."
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
    if not head.mariadb_gtids:
        lost = GtidSet.parse(",".join(given)).subtract(head)
        return f"lacks transactions {lost}" if lost else ""
    if missing := sorted(gtid for gtid in given if not head.contains(GtidSet.parse(gtid))):
        return f"lacks transactions {', '.join(missing[:5])}" + (f" and {len(missing) - 5} others" * bool(missing[5:]))
    with connections.session_on(window.server_uuid) as session:
        start = ResumePoint(window.start, window.start_gtids)
        return Finder(ServerBinlogs(session)).lacks(given, start)
