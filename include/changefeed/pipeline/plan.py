"""plan: preflight the source, find what earlier runs left unfinished, and freeze the window of what is new."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from changefeed.binlog.search.boundaries import boundaries
from changefeed.binlog.search.finder import Finder, ResumePoint, bytes_between
from changefeed.ddl.history import SchemaHistory
from changefeed.errors import BinlogFormatError, BinlogGoneError, PipelineBusyError, SourceError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import FirstRecord
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import ensure_topics
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.coordinates import LAST_DUMP_POSITION, BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.window import BinlogFile, Failover, Window
from changefeed.pipeline.connections import PipelineConnections, ensure_commit_log
from changefeed.pipeline.failover import position_on_new_server
from changefeed.pipeline.known_progress import check_commit_log, check_first_run, known_state
from changefeed.pipeline.open_windows import Unfinished, described, unfinished
from changefeed.pipeline.schema_history import history_for, is_learned, is_lost, prepare_history, restore_history
from changefeed.pipeline.topics import wanted_topics
from changefeed.pipeline.windows import first_checkpoint, settled_state
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity
from changefeed.source.mysql.preflight import preflight
from changefeed.source.mysql.session import Session

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """``unfinished`` windows of earlier runs, and behind them the ``window`` of what is new, which may be empty.

    ``expected`` is the checkpoint that the first of them starts from: what `commit` compares with. ``window_bytes`` is
    the size of the new window, ``lag_bytes`` of all that is still to be published. ``doubts`` are sentences for people
    about a first run: pipelines that are gone, any of which may be this one under an older name, and where it begins.
    """

    window: Window
    expected: Checkpoint
    lag_bytes: int
    window_bytes: int
    unfinished: tuple[Window, ...] = ()
    doubts: tuple[str, ...] = ()
    history: SchemaHistory | None = field(default=None, repr=False, compare=False)
    """What the tables are in the binlog; None where nothing is new, or no record needs it."""

    @property
    def start(self) -> BinlogCoordinates:
        """Where the first of the windows begins."""
        return self.unfinished[0].start if self.unfinished else self.window.start

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.window.is_empty and not self.unfinished


def plan(connections: PipelineConnections, store: CheckpointStore, *, keep_first_checkpoint: bool = True) -> Plan:
    """Freeze ``[checkpoint, head)``; an empty plan means that nothing is new.

    What earlier runs left unfinished comes first, as it was frozen then (`pipeline.open_windows`); where the commit log
    is ahead of the store for another reason, the stored checkpoint is brought up to it.

    A pipeline without a checkpoint gets its first one here, at its `start`, so that the next run goes on from
    there when the start is `latest` too. It is noted in the commit log before it is stored, and is taken from there
    where the store lost it before anything was published. A dry run notes and stores nothing.

    On another server than the checkpoint's the position is found again by GTID set (`pipeline.failover`).

    Raises SourceError or BinlogGoneError where the source cannot serve the window, or executed transactions that are
    not in its binlog; CheckpointError where checkpoint or commit log were lost, or the pipeline published under another
    name (`pipeline.known_progress`);
    StaleCheckpointError where another run moved the checkpoint meanwhile; PipelineBusyError, where something is to be
    stored, while another run is alive.
    """
    name = connections.pipeline.name
    stored = store.load(name)
    if stored is not None or not keep_first_checkpoint:
        return _plan(connections, store, stored, None, keep=keep_first_checkpoint)
    _ensure_topics(connections)
    with connections.lease(brief=True) as lease:  # two that begin a pipeline at once begin it at one place
        return _plan(connections, store, store.load(name), lease, keep=True)


def _ensure_topics(connections: PipelineConnections) -> None:
    """Make the commit log; where the pipeline makes no topics, raises TopicError that names all that are missing."""
    pipeline = connections.pipeline
    if pipeline.topics.create:
        ensure_commit_log(connections)
    else:
        with connections.session() as session:
            ensure_topics(connections.kafka, wanted_topics(pipeline, session), create=False)


def _plan(
    connections: PipelineConnections,
    store: CheckpointStore,
    stored: Checkpoint | None,
    lease: Lease | None,
    *,
    keep: bool,
) -> Plan:
    """As `plan`, from the checkpoint that is ``stored``. To ``keep`` a first one there must be a ``lease``."""
    began = time.monotonic()
    pipeline = connections.pipeline
    with connections.session() as session:
        preflight(session, statements=pipeline.statements)
        uuid = source.server_uuid(session)
        head = source.head(session)
        files = source.binlog_files(session)
        state = known_state(connections, stored)
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
        left = unfinished(checkpoint, state, uuid)
        if stored is not None and left.base != stored and keep:
            _bring_up(store, stored, left.base)
        if left.windows:
            _log.warning("pipeline %s: earlier runs left windows %s", pipeline.name, described(left.windows))
        start, number, failover = _resume(left, session, uuid, head, files, state)
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
            newest=file_identity(connections.mysql, uuid, head.coordinates.file)
            if start.coordinates != head.coordinates
            else None,
        )
        history = None
        if stored is None or left.windows or not window.is_empty:
            reading = left.windows[0] if left.windows else window
            history = _history(connections, session, reading, state, lease, keep=keep)
        if stored is None and lease is not None:  # after its history, which so is never learned later than here
            fault_point.reached("before_first_checkpoint")
            lease.log().keep(FirstRecord(checkpoint))
            store.advance(None, checkpoint)
            _log.info("pipeline %s: first checkpoint at %s", pipeline.name, checkpoint.coordinates)
    fault_point.reached("after_plan")
    first = left.begun.start if left.begun else start.coordinates
    return Plan(
        window,
        left.base,
        bytes_between(files, first, head.coordinates),
        bytes_between(files, start.coordinates, head.coordinates),
        left.windows,
        doubts,
        history,
    )


def _restore_history(connections: PipelineConnections, store: CheckpointStore, lease: Lease | None) -> None:
    """Bring back a schema history that was lost, under a lease."""
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
    """The history that ``window`` is read with. What has to be stored of it is looked for again under a lease."""
    if lease is not None:
        return prepare_history(connections, session, window, state, lease)
    history = history_for(connections, session, window, state)
    if not keep or history is None or not is_learned(history):
        return history
    try:
        with connections.lease(brief=True) as held:
            return prepare_history(connections, session, window, settled_state(connections), held)
    except PipelineBusyError:  # a run is alive: each stores what it learned before it publishes anything
        return history


def _bring_up(store: CheckpointStore, stored: Checkpoint, logged: Checkpoint) -> None:
    """Store the checkpoint that the commit log knows, in place of an older one."""
    store.replace(stored, logged)
    _log.warning(
        "pipeline %s: the stored checkpoint, of window %d at %s, is older than the commit log, which stands behind "
        "window %d at %s: a seek died before it moved the checkpoint, or the store was brought back from a backup. "
        "The checkpoint was brought up to the log.",
        stored.pipeline,
        stored.window,
        stored.coordinates,
        logged.window,
        logged.coordinates,
    )


def _resume(
    left: Unfinished,
    session: Session,
    uuid: str,
    head: source.Head,
    files: list[BinlogFile],
    state: CommitLogState,
) -> tuple[ResumePoint, int, Failover | None]:
    """Where the new window starts behind what is unfinished, its number, and the failover that it comes from."""
    end = Checkpoint.after(left.begun, left.begun.frozen_at_ms) if left.begun else left.end
    if uuid == end.server_uuid:
        check_same_history(end, uuid, head.coordinates, files)
        last = left.begun or (state.seals[end.window].window if end.window in state.seals else None)
        if last is not None and last.newest is not None and last.server_uuid == uuid:
            last.newest.check(file_identity(session.connection, uuid, last.newest.name))
        if left.begun is not None and head.gtids:  # the window's own set is of a moment before its head
            end = replace(end, gtids=Finder(ServerBinlogs(session)).at(end.coordinates).gtids)
        check_same_transactions(end, head, session)
        return ResumePoint(end.coordinates, end.gtids), end.window + 1, None
    start = position_on_new_server(end, session, uuid, head)
    # A new number: progress of the old server's unfinished window has its own, and other coordinates.
    number = max(end.window, state.latest_number) + 1
    return start, number, Failover(end.server_uuid, end.window, end.gtids, str(end.coordinates))


def check_same_history(checkpoint: Checkpoint, uuid: str, head: BinlogCoordinates, files: list[BinlogFile]) -> None:
    """Raises BinlogGoneError when the server's binlog is not the one that ``checkpoint`` stands in."""
    what = f"to resume pipeline {checkpoint.pipeline!r}"
    if uuid != checkpoint.server_uuid:
        raise BinlogGoneError(
            f"checkpoint {checkpoint.coordinates} of pipeline {checkpoint.pipeline!r} belongs to server "
            f"{checkpoint.server_uuid}, found server {uuid}: the same coordinates mean other changes there. Point the "
            "connection at the old server, or seek the pipeline to where it should resume on the new one."
        )
    if head.base != checkpoint.coordinates.base:
        raise BinlogGoneError(
            f"binlogs are named {head.base!r} now, and {checkpoint.coordinates} was wanted {what}: log_bin was "
            "changed. Seek the pipeline to where it should resume."
        )
    source.check_present(checkpoint.coordinates, files, what)
    if not head.has_reached(checkpoint.coordinates):
        raise BinlogGoneError(
            f"the server's binlog ends at {head}, before {checkpoint.coordinates} needed {what}: it was reset, or "
            "restored to an older point. Seek the pipeline to where it should resume."
        )


def check_same_transactions(checkpoint: Checkpoint, head: source.Head, session: Session) -> None:
    """Raises BinlogGoneError when the server lacks transactions that lie before ``checkpoint``, or has others there:
    then its coordinates look plausible and mean something else. Without GTIDs it shows in where events begin."""
    binlogs = ServerBinlogs(session)
    known = GtidSet.parse(checkpoint.gtids)
    if difference := other_binlog(checkpoint, head, binlogs):
        raise BinlogGoneError(
            f"the checkpoint of pipeline {checkpoint.pipeline!r} stands at {checkpoint.coordinates} behind "
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
    """How the server shows that its binlog is not the one of ``checkpoint``, whose file it lists; '' where it does not.

    Raises as `ServerBinlogs` does.
    """
    known, at = GtidSet.parse(checkpoint.gtids), checkpoint.coordinates
    difference = ""
    if not binlogs.is_mariadb and (head.gtids or known):
        difference = _other_sets(known, head, at.file, binlogs)
    if not difference and at != head.coordinates:
        difference = _other_transactions(at, known, binlogs)
    if not difference and binlogs.is_mariadb:
        is_head = at == head.coordinates and at.position <= LAST_DUMP_POSITION
        found = GtidSet.parse(head.gtids) if is_head else binlogs.position_at(at)
        # Compared as it is: a number says nothing of those below it, as servers need not log them in order
        # (gtid_strict_mode=OFF), and the head may have lost a domain (FLUSH BINARY LOGS DELETE_DOMAIN_ID).
        difference = "" if found == known else f"at {at} it is behind {str(found) or 'none'}"
    return difference


def _other_sets(known: GtidSet, head: source.Head, file: str, binlogs: ServerBinlogs) -> str:
    """How the server's GTID sets show that another binlog is there, '' where they do not."""
    if lost := known.subtract(GtidSet.parse(head.gtids)):
        return f"it lacks {lost}"
    foreign = GtidSet.parse(binlogs.logged_before(file)).subtract(known)
    return f"{file!r} begins after {foreign}, which are not in it" if foreign else ""


def _other_transactions(at: BinlogCoordinates, known: GtidSet, binlogs: ServerBinlogs) -> str:
    """How what follows the checkpoint shows that another binlog is there, '' where it does not: after a reset the
    server gives the same GTIDs again, so the sets alone may look right."""
    (size,) = [file.size_bytes for file in binlogs.files() if file.name == at.file]
    try:
        for boundary in boundaries(binlogs.chunks(at.file, at.position, size), at.file, at.position, size):
            if boundary.position != at.position:
                return f"{at} is not between two transactions"
            is_before = bool(boundary.gtid) and known.contains(GtidSet.parse(boundary.gtid))
            if is_before and not binlogs.is_mariadb:
                return f"transaction {boundary.gtid} begins at {at}, and is one of them"
            return ""
    except (BinlogFormatError, SourceError) as error:
        return f"nothing can be read at {at} ({error})"
    return "" if at.position >= size else f"no transaction begins at {at}"


def _goes_on_from_first(pipeline: Pipeline, first: Checkpoint) -> str:
    """A sentence for a pipeline whose store has no checkpoint: whether it was lost or deleted, nobody can tell."""
    return (
        f"pipeline {pipeline.name!r} has no checkpoint in its store, and its commit log has its first one, at "
        f"{first.coordinates}: it goes on from there, so that no change is lost, and not at `start: {pipeline.start}`. "
        f"If it is a new pipeline of an old name, `changefeed seek {pipeline.name} latest --why ...`, or earliest, "
        "says where it begins"
    )


def _first_checkpoint(pipeline: Pipeline, session: Session, uuid: str, head: source.Head) -> Checkpoint:
    coordinates = source.start_coordinates(session, pipeline.start, head)
    gtids = ""
    if head.gtids:  # those before the start are looked up: the server's own set is of a moment before the head
        gtids = Finder(ServerBinlogs(session)).at(coordinates).gtids
    return Checkpoint(pipeline.name, 0, uuid, coordinates, gtids, int(time.time() * 1000))
