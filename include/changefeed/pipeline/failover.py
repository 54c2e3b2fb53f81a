"""Failover: the position on the new server, found by GTID set, and the published part of the old server's window."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.errors import AccountingError, BinlogGoneError, SourceUnavailableError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.model.binlog_order import UUID_LENGTH, BinlogOrder, gtid_of
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Failover, HighWaterMark, Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import Head

_log = logging.getLogger(__name__)

_UNTIL_CAUGHT_UP = (
    "They are in Kafka already. Nothing more was published. Expected a replica that gets them soon, or the old server "
    "to come back: run again when it has them, or the connection leads to the old server; a continuous run tries again "
    "by itself. If neither happens, the failover lost them, and consumers have changes that the source does not have: "
    "correct that there, and seek the pipeline to where it should resume."
)
"""The end of an error about published transactions that are missing on the new server."""


def position_on_new_server(
    checkpoint: Checkpoint, session: Session, uuid: str, head: Head, state: CommitLogState
) -> ResumePoint:
    """The position of the first transaction after ``checkpoint`` on the server of ``session``.

    Raises SourceUnavailableError if published transactions are missing on the new server, which may be a replica that
    is behind; BinlogGoneError if the position cannot be found, or if other transactions are in their place.
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
    published = GtidSet.parse(checkpoint.gtids)
    of_old_server = {
        partition: progress
        for partition, progress in state.progress.items()
        if progress.window > checkpoint.window and progress.source == checkpoint.server_uuid
    }
    in_part = GtidSet.parse(",".join(_published_gtids(_places(of_old_server, state), state)))
    if lost := published.union(in_part).subtract(GtidSet.parse(head.gtids)):
        raise SourceUnavailableError(f"{what}, which does not have transactions {lost}. {_UNTIL_CAUGHT_UP}")
    finder = Finder(ServerBinlogs(session))
    try:
        resume = finder.after_gtids(published)
    except BinlogGoneError as error:
        raise BinlogGoneError(
            f"{what}: {error}. Compare the source with what is in Kafka, mend what was lost there, and seek the "
            "pipeline to where it should resume."
        ) from error
    nameless = None if published.mariadb_gtids else finder.anonymous_before(resume.coordinates, published)
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


def high_water_marks(
    connections: PipelineConnections, window: Window, state: CommitLogState
) -> tuple[HighWaterMark, ...]:
    """The high-water marks: for each topic-partition the last published transaction of the old server's unfinished
    windows.

    The result is () if these windows published nothing. Call it after fencing. The marks are stored with the begun
    window, because the run on the new server overwrites the progress records that they come from; if ``window`` was
    begun already, its stored marks are returned. Raises AccountingError if they are not known exactly; then nothing is
    published.
    """
    failover = window.failover
    if failover is None:
        return ()
    begun = state.begun_record(window)
    if begun is not None:
        return begun.high_water_marks
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
        HighWaterMark(topic, partition, progress.window, progress.gtid, progress.gtid_messages, progress.published)
        for (topic, partition), progress in ahead.items()
    )


def _check_exact(
    connections: PipelineConnections,
    window: Window,
    failover: Failover,
    ahead: dict[TopicPartition, Progress],
    state: CommitLogState,
) -> None:
    """Raise AccountingError unless the published transactions of the old server's windows are known, and the new server
    has all of them; SourceUnavailableError if it may get them yet."""
    places = _places(ahead, state)
    reason = None
    if {progress.source for progress in ahead.values()} != {failover.from_uuid}:
        reason = "a third server had begun a window too"
    elif any(not progress.gtid for progress in ahead.values()):
        reason = "its transactions have no GTIDs"
    elif len(places) < len(ahead):
        reason = (
            "the commit log does not have the order of its transactions, which is too long where GTIDs are of many "
            "sources or their numbers do not rise"
        )
    else:
        published = _published_gtids(places, state)
        if lost := GtidSet.parse(",".join(published)).subtract(GtidSet.parse(window.head_gtids)):
            raise SourceUnavailableError(
                f"window {failover.window + 1} of pipeline {window.pipeline!r} was published in part from server "
                f"{failover.from_uuid}, and server {window.server_uuid} did not have its transactions {lost} when "
                f"window {window.number} was frozen. {_UNTIL_CAUGHT_UP}"
            )
        if fault := _missing_transactions(connections, window, published):
            reason = f"the new server {fault}; what is in Kafka already has to be there"
    if reason:
        latest = max(ahead.values(), key=lambda progress: progress.window).source
        raise AccountingError(
            f"window {failover.window + 1} of pipeline {window.pipeline!r} was published in part from server "
            f"{latest}, and cannot be ended on server {window.server_uuid} exactly once: {reason}. Nothing was "
            f"published. Point the connection at server {latest} again and run, or seek the pipeline to where it "
            "should resume, which may repeat changes."
        )


def _places(ahead: Mapping[TopicPartition, Progress], state: CommitLogState) -> dict[TopicPartition, tuple[int, int]]:
    """For each topic-partition the window of its last published transaction, and the place of that in the window; those
    of which the commit log has no order are left out."""
    places = {
        partition: (progress.window, state.orders[progress.window].place(progress.gtid))
        for partition, progress in ahead.items()
        if progress.gtid and progress.window in state.orders
    }
    return {partition: (window, place) for partition, (window, place) in places.items() if place is not None}


def _published_gtids(places: Mapping[TopicPartition, tuple[int, int]], state: CommitLogState) -> set[str]:
    """The transactions of the old server's windows up to the last one with a published message."""
    ends: dict[int, int] = {}
    for window, place in places.values():
        ends[window] = max(ends.get(window, 0), place + 1)
    return {
        gtid_of(source, number)
        for window, end in ends.items()
        for source, first, last in state.orders[window].before(end)
        for number in range(first, last + 1)
    }


def check_rising(window: Window, order: BinlogOrder) -> None:
    """Raise AccountingError if the sequence numbers of a MariaDB domain do not rise in ``order``.

    ``order`` has the transactions of ``window``, the first window after a failover. Only their numbers show which of
    them were published before the failover.
    """
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
    """Raise AccountingError if ``tables`` of ``window`` have rows that the new server may log in another order.

    A part of the window was published from the old server. Only the order shows which rows are in that part.
    """
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
    """The fault if a MariaDB server has other transactions with the GTIDs ``gtids``; '' if it has all of ``gtids``
    itself.

    ``window`` is the first window after the failover to this server. GTIDs before it were checked before.
    """
    before = GtidSet.parse(window.start_gtids)
    required = {gtid for gtid in GtidSet.parse(gtids).mariadb_gtids if not before.contains(GtidSet.parse(gtid))}
    return _missing_transactions(connections, window, required) if required else ""


def _missing_transactions(connections: PipelineConnections, window: Window, published: set[str]) -> str:
    """The fault if transactions ``published`` are missing on the new server; '' if its binlog has all of them."""
    head = GtidSet.parse(window.head_gtids)
    if not head.mariadb_gtids:
        lost = GtidSet.parse(",".join(published)).subtract(head)
        return f"does not have transactions {lost}" if lost else ""
    if missing := sorted(gtid for gtid in published if not head.contains(GtidSet.parse(gtid))):
        return f"does not have transactions {', '.join(missing[:5])}" + (
            f" and {len(missing) - 5} others" * bool(missing[5:])
        )
    with connections.session_on(window.server_uuid) as session:
        start = ResumePoint(window.start, window.start_gtids)
        return Finder(ServerBinlogs(session)).missing_transactions(published, start)
