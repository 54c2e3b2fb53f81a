"""The task `plan`: check the source, find unfinished windows of earlier runs, and freeze the window of new changes."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from changefeed.binlog.search.boundaries import boundaries
from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.ddl.history import SchemaHistory
from changefeed.errors import BinlogFormatError, BinlogGoneError, BinlogRefusedError, PipelineBusyError, SettingsError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import FirstRecord
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import ensure_topics
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.coordinates import LAST_DUMP_POSITION, BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.window import BinlogFile, Failover, Window, bytes_between
from changefeed.pipeline.complete_tables import complete_tables, first_complete_tables
from changefeed.pipeline.connections import PipelineConnections, ensure_commit_log
from changefeed.pipeline.failover import position_on_new_server
from changefeed.pipeline.known_head import known_head, remember_head
from changefeed.pipeline.known_progress import check_commit_log, check_first_run, state_for_checkpoint
from changefeed.pipeline.open_windows import Unfinished, find_unfinished
from changefeed.pipeline.same_history import check_same_history
from changefeed.pipeline.schema_history import history_for, is_learned, is_lost, prepare_history, restore_history
from changefeed.pipeline.topics import captured_routes, required_topics
from changefeed.pipeline.windows import first_checkpoint, last_stable_state
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity_once
from changefeed.source.mysql.preflight import preflight
from changefeed.source.mysql.session import Session

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The ``unfinished`` windows of earlier runs, and after them the ``window`` of new changes, which may be empty.

    ``expected`` is the checkpoint that the first window starts from; `commit` compares it with the stored one.
    ``window_bytes`` is the size of the new window, ``lag_bytes`` the size of all unpublished changes. ``doubts`` are
    sentences for users about a first run: where it begins, and which removed pipelines may be this one under an older
    name.
    """

    window: Window
    expected: Checkpoint
    lag_bytes: int
    window_bytes: int
    unfinished: tuple[Window, ...] = ()
    begun: Window | None = None
    """The last window of ``unfinished`` if it is not sealed; the others are sealed, and only not committed."""
    doubts: tuple[str, ...] = ()
    last_takeover: int = -1
    """The number of the continuous run that took over last; see `ingest.handover`."""
    history: SchemaHistory | None = field(default=None, repr=False, compare=False)
    """The schemas of the tables along the binlog; None if there are no new changes, or no record needs schemas."""

    @property
    def start(self) -> BinlogCoordinates:
        """The start of the first window."""
        return self.unfinished[0].start if self.unfinished else self.window.start

    @property
    def sealed_up_to(self) -> BinlogCoordinates:
        """The start of the first window that is not sealed. The checkpoint is there, or before sealed windows."""
        return self.begun.start if self.begun else self.window.start

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.window.is_empty and not self.unfinished

    @property
    def is_published(self) -> bool:
        """Whether there is nothing to publish; sealed windows may still have to be committed."""
        return self.window.is_empty and self.begun is None

    @property
    def nothing_new(self) -> str:
        """The text for users of a plan with nothing to publish."""
        if self.is_empty:
            return f"nothing new, checkpoint and head are both at {self.window.head}"
        return f"nothing new, all up to the head at {self.window.head} is published, and will be committed"


def plan(
    connections: PipelineConnections,
    store: CheckpointStore,
    *,
    keep_first_checkpoint: bool = True,
    lease: Lease | None = None,
) -> Plan:
    """Freeze the window ``[checkpoint, head)``; the plan is empty if there are no new changes. A caller that holds the
    pipeline's ``lease`` gives it.

    Unfinished windows of earlier runs come first, as they were frozen (`pipeline.open_windows`). If the commit log is
    ahead of the store for another reason, the stored checkpoint is moved up to the log.

    A pipeline without a checkpoint gets its first one here, at its `start`. So the next run continues from there even
    if the start is `latest`. The first checkpoint is recorded in the commit log before it is stored. If the store loses
    it before anything is published, it is read from the log. A dry run (not ``keep_first_checkpoint``) records and
    stores nothing.

    If the server is not the checkpoint's server, the position is found by GTID set (`pipeline.failover`).

    Raises:

    - SourceError or BinlogGoneError if the source cannot serve the window, or executed transactions that are not in its
      binlog.
    - CheckpointError if the checkpoint or the commit log was lost, or if the pipeline published under another name
      (`pipeline.known_progress`).
    - StaleCheckpointError if another run moved the checkpoint in the meantime.
    - PipelineBusyError if something must be stored while another run is alive.
    """
    name = connections.pipeline.name
    stored = store.load(name)
    if lease is not None or stored is not None or not keep_first_checkpoint:
        return _plan(connections, store, stored, lease, keep=keep_first_checkpoint)
    _ensure_topics(connections)
    with connections.lease(brief=True) as lease:  # two first runs at the same time get the same start
        return _plan(connections, store, store.load(name), lease, keep=True)


def _ensure_topics(connections: PipelineConnections) -> None:
    """Create the commit log. If the pipeline creates no topics, raise a TopicError that names all missing topics."""
    pipeline = connections.pipeline
    if pipeline.topics.create:
        ensure_commit_log(connections)
    else:
        with connections.session() as session:
            routes = captured_routes(pipeline, session)
        ensure_topics(connections.kafka, required_topics(pipeline, routes), create=False)


def _plan(
    connections: PipelineConnections,
    store: CheckpointStore,
    stored: Checkpoint | None,
    lease: Lease | None,
    *,
    keep: bool,
) -> Plan:
    """The plan from the ``stored`` checkpoint; see `plan`. A ``lease`` is necessary to ``keep`` a first checkpoint."""
    began = time.monotonic()
    pipeline = connections.pipeline
    with connections.session() as session:
        preflight(session, statements=pipeline.statements)
        uuid = source.server_uuid(session)
        state = state_for_checkpoint(connections, stored)
        head = source.head(session)  # after the log: a run that publishes now may have frozen a window up to its head
        files = source.binlog_files(session)
        check_commit_log(connections, stored, state)
        checkpoint = stored or first_checkpoint(state)
        doubts: tuple[str, ...] = ()
        if checkpoint is None:
            doubts = check_first_run(connections, store, session, uuid, head, state)
            checkpoint = _first_checkpoint(pipeline, session, uuid, head)
        else:
            doubts = () if stored else (_goes_on_from_first(pipeline, checkpoint),)
            if keep:
                _restore_history(connections, store, lease)
        for doubt in doubts:
            _log.warning("%s", doubt)
        left = find_unfinished(checkpoint, state, uuid)
        if stored is not None and left.base != stored and keep:
            _bring_up(store, stored, left.base)
        if begun := left.begun:
            where = f"{begun.number} ({begun.start} to {begun.head})"
            _log.warning("pipeline %s: an earlier run did not finish window %s", pipeline.name, where)
        start, number, failover = _resume(connections, left, session, uuid, head, files, state)
        window = Window(
            pipeline=pipeline.name,
            number=number,
            server_uuid=uuid,
            start=start.coordinates,
            head=head.coordinates,
            start_gtids=start.gtids,
            head_gtids=head.gtids,
            frozen_at_ms=int(time.time() * 1000),
            plan_seconds=round(time.monotonic() - began, 3),
            failover=failover,
            newest=file_identity_once(session, uuid, head.coordinates.file)
            if start.coordinates != head.coordinates
            else None,
        )
        remember_head(connections, window, head)
        history = None
        if stored is None or left.windows or not window.is_empty:
            reading = left.windows[0] if left.windows else window
            history = _history(connections, session, reading, state, lease, keep=keep)
        # After the history is stored, so that it is never learned from a later position than the checkpoint.
        if stored is None and lease is not None:
            fault_point.reach("before_first_checkpoint")
            is_new = pipeline.snapshot.new_tables and complete_tables(state) is None
            complete = [first_complete_tables(pipeline, session)] if is_new else []
            lease.log().keep(FirstRecord(checkpoint), *complete)
            store.advance(None, checkpoint)
            _log.info("pipeline %s: first checkpoint at %s", pipeline.name, checkpoint.coordinates)
        elif keep and pipeline.snapshot.new_tables and complete_tables(state) is None:
            _keep_complete_tables(connections, session, lease)
    fault_point.reach("after_plan")
    first = left.begun.start if left.begun else start.coordinates
    return Plan(
        window,
        left.base,
        lag_bytes=bytes_between(files, first, head.coordinates),
        window_bytes=bytes_between(files, start.coordinates, head.coordinates),
        unfinished=left.windows,
        begun=left.begun,
        doubts=doubts,
        last_takeover=state.last_takeover,
        history=history,
    )


def _keep_complete_tables(connections: PipelineConnections, session: Session, lease: Lease | None) -> None:
    """Store the first record of complete tables, for a pipeline that gets the setting later."""
    try:
        with nullcontext(lease) if lease else connections.lease(brief=True) as held:
            if complete_tables(held.log().read()) is None:
                held.log().keep(first_complete_tables(connections.pipeline, session))
    except PipelineBusyError as error:
        _log.info("the next run finds the tables that are complete: %s", error)


def _restore_history(connections: PipelineConnections, store: CheckpointStore, lease: Lease | None) -> None:
    """Restore a lost schema history, under a lease."""
    if is_lost(connections, store):
        with nullcontext(lease) if lease else connections.lease(brief=True) as held:
            restore_history(connections, store, held)


def _history(
    connections: PipelineConnections,
    session: Session,
    window: Window,
    state: CommitLogState,
    lease: Lease | None,
    *,
    keep: bool,
) -> SchemaHistory | None:
    """The history for reading ``window``. If a learned history must be stored, it is prepared again under a lease."""
    if lease is not None:
        return prepare_history(connections, session, window, state, lease)
    history = history_for(connections, session, window, state)
    if not keep or history is None or not is_learned(history):
        return history
    try:
        with connections.lease(brief=True) as held:
            return prepare_history(connections, session, window, last_stable_state(connections), held)
    except PipelineBusyError:  # another run is alive; each run stores its learned history before it publishes anything
        return history


def _bring_up(store: CheckpointStore, stored: Checkpoint, logged: Checkpoint) -> None:
    """Replace the ``stored`` checkpoint by the later one of the commit log."""
    store.replace(stored, logged)
    _log.warning(
        "pipeline %s: the stored checkpoint, of window %d at %s, is older than the commit log, which is after "
        "window %d at %s: a seek died before it moved the checkpoint, or the store was brought back from a backup. "
        "The checkpoint was brought up to the log.",
        stored.pipeline,
        stored.window,
        stored.coordinates,
        logged.window,
        logged.coordinates,
    )


def _resume(
    connections: PipelineConnections,
    left: Unfinished,
    session: Session,
    uuid: str,
    head: source.Head,
    files: list[BinlogFile],
    state: CommitLogState,
) -> tuple[ResumePoint, int, Failover | None]:
    """The start of the new window, after the unfinished ones, its number, and the failover that it comes from."""
    end = Checkpoint.after(left.begun, left.begun.frozen_at_ms) if left.begun else left.end
    if uuid == end.server_uuid:
        last = left.begun or (state.seals[end.window].window if end.window in state.seals else None)
        check_same_files(end, last, session, uuid, head, files)
        if left.begun is not None and head.gtids:  # the window's own GTID set was read before its head
            end = replace(end, gtids=Finder(ServerBinlogs(session)).at(end.coordinates).gtids)
        known = known_head(connections, session, uuid, end.coordinates.file)
        check_same_transactions(end, head, session, ServerBinlogs(session, head, files, known))
        return ResumePoint(end.coordinates, end.gtids), end.window + 1, None
    start = position_on_new_server(end, session, uuid, head, state)
    # A new number, because the old server's unfinished window has progress with its own number and other coordinates.
    number = max(end.window, state.latest_number) + 1
    return start, number, Failover(end.server_uuid, end.window, end.gtids, str(end.coordinates))


def check_same_files(
    end: Checkpoint, last: Window | None, session: Session, uuid: str, head: source.Head, files: list[BinlogFile]
) -> None:
    """Raise BinlogGoneError if the server ``uuid`` does not have the files of the binlog of ``end``; ``last`` is the
    window that ends there, if it is known."""
    check_same_history(end, uuid, head.coordinates, files)
    if last is not None and last.newest is not None and last.server_uuid == uuid:
        last.newest.check(file_identity_once(session, uuid, last.newest.name))


def check_same_transactions(
    checkpoint: Checkpoint, head: source.Head, session: Session, binlogs: ServerBinlogs
) -> None:
    """Raise BinlogGoneError if the server does not have exactly the transactions before ``checkpoint``.

    With other transactions the coordinates exist, but mean another position. Without GTIDs the check is whether a
    transaction begins at the coordinates.
    """
    known = GtidSet.parse(checkpoint.gtids)
    if difference := other_binlog(checkpoint, head, binlogs):
        raise BinlogGoneError(
            f"the checkpoint of pipeline {checkpoint.pipeline!r} is at {checkpoint.coordinates} after "
            f"transactions {str(known) or '(without GTIDs)'}, and the binlog of this server is another one: "
            f"{difference}. It was renumbered (RESET BINARY LOGS AND GTIDS), or the server was restored to an older "
            "point. Seek the pipeline to where it should resume."
        )
    if unlogged := binlogs.unlogged.subtract(known):
        raise BinlogGoneError(
            f"{session.connection}: transactions {unlogged} were executed after the checkpoint "
            f"{checkpoint.coordinates} of pipeline {checkpoint.pipeline!r}, and the server does not log them: their "
            "changes are in none of its binlogs. On a replica set log_replica_updates=ON, or read from its source; "
            "then seek to where the pipeline should resume. What was not logged reaches consumers by a dump only."
        )


def other_binlog(checkpoint: Checkpoint, head: source.Head, binlogs: ServerBinlogs) -> str:
    """The difference if the server's binlog is not the binlog of ``checkpoint``, whose file it lists; '' if there is
    none.

    Raises what `ServerBinlogs` raises.
    """
    known, at = GtidSet.parse(checkpoint.gtids), checkpoint.coordinates
    difference = ""
    if not binlogs.is_mariadb and (head.gtids or known):
        difference = _other_sets(known, head, at, binlogs)
    if not difference and at != head.coordinates:
        difference = _other_transactions(at, known, binlogs)
    if not difference and binlogs.is_mariadb:
        is_head = at == head.coordinates and at.position <= LAST_DUMP_POSITION
        found = GtidSet.parse(head.gtids) if is_head else binlogs.position_at(at)
        # The positions must be equal: a GTID does not prove that lower numbers were logged, because servers need not
        # log them in order (gtid_strict_mode=OFF), and the head may have lost a domain (FLUSH BINARY LOGS
        # DELETE_DOMAIN_ID).
        difference = "" if found == known else f"at {at} it is after {str(found) or 'none'}"
    return difference


def _other_sets(known: GtidSet, head: source.Head, at: BinlogCoordinates, binlogs: ServerBinlogs) -> str:
    """The difference between the server's GTID sets and ``known``, which proves another binlog; '' if there is none.

    A transaction is in the binlog before it is in the server's set: for long, if its commit waits for a replica
    (rpl_semi_sync_source_wait_point=AFTER_SYNC). So transactions that are not in the set are searched in the binlog.
    """
    lost = known.subtract(GtidSet.parse(head.gtids))
    if lost and (lost := lost.subtract(_logged_in_file(at, binlogs))):
        return f"{lost} are missing"
    foreign = GtidSet.parse(binlogs.logged_before(at.file)).subtract(known)
    return f"{at.file!r} begins after {foreign}, which are not in it" if foreign else ""


def _logged_in_file(at: BinlogCoordinates, binlogs: ServerBinlogs) -> GtidSet:
    """The GTIDs in the server's binlog before ``at``, by its events; empty if ``at`` is not between two transactions.

    It reads one file: a server begins the next file after the transactions of the last one are in its GTID set.
    """
    try:
        return GtidSet.parse(Finder(binlogs).at(at).gtids)
    except (SettingsError, BinlogFormatError, BinlogGoneError, BinlogRefusedError):
        return GtidSet()


def _other_transactions(at: BinlogCoordinates, known: GtidSet, binlogs: ServerBinlogs) -> str:
    """The difference in the events after the checkpoint, which proves another binlog; '' if there is none.

    GTID sets alone are not enough, because after a reset the server assigns the same GTIDs again. Raises what
    `ServerBinlogs` raises, except errors that prove another binlog.
    """
    (size,) = [file.size_bytes for file in binlogs.files() if file.name == at.file]
    try:
        for boundary in boundaries(binlogs.first_events(at.file, at.position, size), at.file, at.position, size):
            if boundary.position != at.position:
                return f"{at} is not between two transactions"
            is_before = bool(boundary.gtid) and known.contains(GtidSet.parse(boundary.gtid))
            if is_before and not binlogs.is_mariadb:
                return f"transaction {boundary.gtid} begins at {at}, and is one of them"
            return ""
    except (BinlogFormatError, BinlogGoneError, BinlogRefusedError) as error:  # not a refused login or a busy server
        return f"nothing can be read at {at} ({error})"
    return "" if at.position >= size else f"no transaction begins at {at}"


def _goes_on_from_first(pipeline: Pipeline, first: Checkpoint) -> str:
    """A sentence for users if the store has no checkpoint, which may be lost or deleted, and the commit log has the
    first one."""
    return (
        f"pipeline {pipeline.name!r} has no checkpoint in its store, and its commit log has its first one, at "
        f"{first.coordinates}: it goes on from there, so that no change is lost, and not at `start: {pipeline.start}`. "
        f"If it is a new pipeline of an old name, `changefeed seek {pipeline.name} latest --why ...`, or earliest, "
        "says where it begins"
    )


def _first_checkpoint(pipeline: Pipeline, session: Session, uuid: str, head: source.Head) -> Checkpoint:
    coordinates = source.start_coordinates(session, pipeline.start, head)
    gtids = ""
    if head.gtids:  # the set at the start is searched in the binlog: the server's own set was read before the head
        gtids = Finder(ServerBinlogs(session)).at(coordinates).gtids
    return Checkpoint(pipeline.name, 0, uuid, coordinates, gtids, int(time.time() * 1000))
