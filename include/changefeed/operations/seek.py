"""seek: move a checkpoint to other coordinates, forwards or back, and keep a record of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from changefeed.binlog.search.finder import Finder, ResumePoint, bytes_between
from changefeed.errors import CheckpointError, SettingsError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.fencing import fence
from changefeed.model.checkpoint import Checkpoint, CheckpointStore, stale
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.seek import SeekRecord, SeekTarget, UnfinishedWindow
from changefeed.model.window import BinlogFile, Window
from changefeed.pipeline.connections import PipelineConnections, ensure_commit_log
from changefeed.pipeline.known_progress import lost_log
from changefeed.pipeline.plan import other_binlog, plan
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.pipeline.windows import commit_log_state, latest_checkpoint, sought_checkpoint
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SeekPlan:
    """What a seek would do. ``files`` are those that are skipped or repeated, whole or in part.

    ``repeated_bytes`` reach from the target to the last event of which anything is in Kafka: what windows that are
    ``unfinished`` were given counts, as a seek gives them up. ``gone`` names what is skipped and not on the server any
    more: then ``skipped_bytes`` are the least that it can be. ``not_known`` says why the figures are not known, or not
    all of them. ``lost`` says by what is known how far the pipeline has come, where it has no checkpoint any more.
    ``undo`` is where a seek back would lead, None where that is not on this server.
    """

    pipeline: str
    asked: str
    before: Checkpoint | None
    to: ResumePoint
    server_uuid: str
    skipped_bytes: int
    repeated_bytes: int
    files: tuple[str, ...]
    unfinished: tuple[UnfinishedWindow, ...] = ()
    gone: str = ""
    not_known: str = ""
    lost: str = ""
    undo: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, as a task and the REST API hand them on."""
        return {
            "pipeline": self.pipeline,
            "asked": self.asked,
            "from": str(self.before.coordinates) if self.before else None,
            "to": str(self.to.coordinates),
            "to_gtids": self.to.gtids,
            "skipped_bytes": self.skipped_bytes,
            "repeated_bytes": self.repeated_bytes,
            "files": list(self.files),
            "unfinished": [asdict(window) for window in self.unfinished],
            "not_known": self.not_known,
            "undo": self.undo,
            "effect": self.effect,
        }

    @property
    def effect(self) -> str:
        """What happens, in one sentence."""
        where = f"in {self.files[0]} to {self.files[-1]}" if self.files else ""
        parts = [self.lost] if self.lost else []
        if self.repeated_bytes:
            parts.append(
                f"{self.repeated_bytes:,} bytes of binlog {where} will be published again: consumers see them twice"
            )
        if self.skipped_bytes:
            least = "at least " if self.gone else ""
            beside = f", among them {self.gone}, which the server does not have any more" if self.gone else ""
            skipped = f"{least}{self.skipped_bytes:,} bytes of binlog {where}".rstrip()
            parts.append(f"{skipped}{beside}, will never be published by this pipeline")
        if self.not_known:
            parts.append(self.not_known)
        elif not self.repeated_bytes and not self.skipped_bytes:
            parts.append("nothing is skipped or repeated")
        parts += [f"{window}, is given up with {window.messages:,} messages in Kafka" for window in self.unfinished]
        return "; ".join(parts)


@dataclass(frozen=True)
class _Published:
    """How far the pipeline has come by its commit log: all is in Kafka up to ``whole``, and nothing behind ``part``."""

    whole: BinlogCoordinates
    part: BinlogCoordinates
    unfinished: tuple[UnfinishedWindow, ...]


def plan_seek(
    connections: PipelineConnections, target: str, store: CheckpointStore, *, expected: str | None = None
) -> SeekPlan:
    """Find ``target`` in the source's binlog and say what going there skips or repeats. Changes nothing.

    ``expected`` is where the person who asks saw the checkpoint (FILE:POSITION), None where that does not matter.

    Raises SettingsError for a target that cannot be read or is no commit boundary, BinlogGoneError for one that the
    server does not have any more, naming what it has; CheckpointError when the checkpoint is not at ``expected``.
    """
    pipeline, wanted = connections.pipeline, SeekTarget.parse(target)
    before = _current(pipeline, store)
    _check_expected(pipeline, before, expected)
    state = commit_log_state(connections)
    stands, origin = _stands(pipeline, before, state)
    with connections.session() as session:
        uuid = source.server_uuid(session)
        binlogs = ServerBinlogs(session)
        to = _located(Finder(binlogs), wanted)
        files = list(binlogs.files())
        other = _other_binlog(stands, uuid, binlogs) if stands else ""
    planned = SeekPlan(pipeline.name, target, before, to, uuid, 0, 0, ())
    if stands is None:
        return replace(
            planned,
            not_known="the pipeline has no checkpoint, and no window in its commit log: what it has published, if "
            "anything, is not known",
        )
    published = _published(stands, state, uuid)
    if origin:
        planned = replace(
            planned, lost=f"the checkpoint was lost; by {origin} all up to {stands.coordinates} is published"
        )
    planned = replace(planned, unfinished=published.unfinished)
    if other:
        return replace(planned, not_known=f"what is skipped or repeated is not known: {other}")
    if lost_log(connections, stands, state):
        planned = replace(
            planned,
            not_known=f"the commit log does not have window {stands.window}: what a run published after "
            f"{stands.coordinates} and did not commit is not known, and comes twice",
        )
    return _compared(planned, published, stands.coordinates, files)


def _compared(
    planned: SeekPlan, published: _Published, stands: BinlogCoordinates, files: Sequence[BinlogFile]
) -> SeekPlan:
    """``planned`` with what it skips or repeats, all in the binlog of one server, which lists ``files``."""
    to, oldest = planned.to.coordinates, files[0]
    skipped = repeated = 0
    gone = ""
    if published.whole < to:
        begin = published.whole
        if begin.number < oldest.number:
            last = f" to the end of file {oldest.number - 1}" if begin.number + 1 < oldest.number else " on"
            gone, begin = f"what was in {begin.file} from {begin.position}{last}", BinlogCoordinates(oldest.name, 0)
        skipped = bytes_between(files, begin, to)
    if to < published.part:
        repeated = bytes_between(files, to, published.part)
    low, *_, high = sorted((published.whole, published.part, to))
    names = tuple(file.name for file in files if low.number <= file.number <= high.number)
    return replace(
        planned,
        skipped_bytes=skipped,
        repeated_bytes=repeated,
        files=names if skipped or repeated else (),
        gone=gone,
        undo=str(stands) if stands.number >= oldest.number else None,
    )


def _stands(pipeline: Pipeline, before: Checkpoint | None, state: CommitLogState) -> tuple[Checkpoint | None, str]:
    """Where the pipeline is: its checkpoint, or where that was lost the commit log's, and what of it says so."""
    if before is not None:
        return before, ""
    return latest_checkpoint(pipeline.name, state) or (None, "")


def _other_binlog(stands: Checkpoint, uuid: str, binlogs: ServerBinlogs) -> str:
    """Why coordinates of the checkpoint cannot be compared with those of the server ``uuid``; '' where they can."""
    if stands.server_uuid != uuid:
        return "the checkpoint moves to another server, whose binlog cannot be compared with the old one's"
    at, files, end = stands.coordinates, binlogs.files(), binlogs.end()
    if at.base != end.coordinates.base:
        return f"binlogs are named {end.coordinates.base!r} now, and were {at.base!r}"
    if end.coordinates < at:
        return f"the server's binlog ends before {at}: it was reset, or restored to an older point"
    if at.number < files[0].number:
        lost = GtidSet.parse(stands.gtids).subtract(GtidSet.parse(end.gtids))
        return f"the server's binlog is another one since: it lacks {lost}" if lost else ""
    difference = other_binlog(stands, source.Head(end.coordinates, end.gtids), binlogs)
    return f"the server's binlog is another one since: {difference}" if difference else ""


def _published(before: Checkpoint, state: CommitLogState, server_uuid: str) -> _Published:
    """What the commit log says was published behind ``before``, which it may be ahead of."""
    since, whole = before.window, before.coordinates
    if (sought := max(state.seeks, default=0)) > since:  # it died before it moved the checkpoint, or the store is older
        since, whole = sought, BinlogCoordinates.parse(state.seeks[sought].to)
    unfinished = []
    for manifest in [state.seals[number] for number in state.seals if number > since]:
        messages = sum(receipt.messages + receipt.already_there for receipt in manifest.topics)
        unfinished.append(_unfinished(manifest.window, messages, sealed=True))
        if manifest.window.server_uuid == server_uuid:
            whole = max(whole, manifest.window.head)
    part = whole
    for number, window in state.begun.items():
        if number > since:
            given = [progress for progress in state.progress.values() if progress.window == number]
            unfinished.append(_unfinished(window, sum(progress.messages for progress in given), sealed=False))
            if window.server_uuid == server_uuid:
                part = max([part, *(BinlogCoordinates(progress.origin, progress.position) for progress in given)])
    return _Published(whole, part, tuple(unfinished))


def _unfinished(window: Window, messages: int, *, sealed: bool) -> UnfinishedWindow:
    return UnfinishedWindow(window.number, str(window.start), str(window.head), sealed, messages)


def unfinished_run(connections: PipelineConnections, store: CheckpointStore) -> PlannedRun | None:
    """What earlier runs left unfinished, as a run that finishes it before a seek; None where nothing is.

    Raises as `plan` does.
    """
    planned = plan(connections, store)
    return PlannedRun(planned.unfinished, planned.expected, planned.lag_bytes) if planned.unfinished else None


def seek(
    connections: PipelineConnections, planned: SeekPlan, store: CheckpointStore, *, who: str, why: str
) -> SeekRecord:
    """Do what ``planned`` says, if the checkpoint is still where it was then.

    While a run is alive it is refused. Every earlier attempt is fenced, then the record is written and the progress of
    what was published is forgotten, both or neither, and last the checkpoint moves. A seek that dies before that is
    ended by the next run. Windows that are unfinished are given up; their numbers stand in the record.

    Raises PipelineBusyError while a run is alive, StaleCheckpointError when the checkpoint moved since the plan,
    CheckpointError when more was published since, SettingsError without a reason. A seek that slept for longer than its
    lease raises FencedError where nothing is written yet; StaleCheckpointError where its record is, and another run has
    ended it.
    """
    check_reason(why)
    pipeline = connections.pipeline
    ensure_commit_log(connections)
    with connections.lease() as lease:
        fence(lease)
        log = lease.log()
        before, state = store.load(pipeline.name), log.read()
        stands, _ = _stands(pipeline, before, state)
        if before != planned.before:
            raise stale(pipeline.name, planned.before, before)
        unfinished = _published(stands, state, planned.server_uuid).unfinished if stands else ()
        if unfinished != planned.unfinished:
            raise CheckpointError(
                f"pipeline {pipeline.name!r} has published since the seek was planned: unfinished are "
                f"{', '.join(map(str, unfinished)) or 'no windows'} now. Nothing was changed; look again and seek."
            )
        record = SeekRecord(
            number=max(before.window if before else 0, state.latest_number) + 1,
            at_ms=int(time.time() * 1000),
            who=who,
            why=why,
            asked=planned.asked,
            before=str(before.coordinates) if before else None,
            before_gtids=before.gtids if before else "",
            to=str(planned.to.coordinates),
            to_gtids=planned.to.gtids,
            skipped_bytes=planned.skipped_bytes,
            repeated_bytes=planned.repeated_bytes,
            server_uuid=planned.server_uuid,
            discarded=tuple(window.number for window in unfinished),
        )
        log.seek(record, state)
        store.replace(before, sought_checkpoint(pipeline.name, record))
    _log.info("pipeline %s: %s sought from %s to %s: %s", pipeline.name, who, record.before, record.to, planned.effect)
    return record


def check_reason(why: str) -> None:
    """Raises SettingsError where the reason of a seek is empty."""
    if not why.strip():
        raise SettingsError("a seek needs a reason (why): it is what the next person reads in the record")


def seeks(connections: PipelineConnections) -> list[SeekRecord]:
    """The pipeline's seeks, latest first; raises TopicError before its first run, when it has no commit log."""
    records = connections.commit_log().read().seeks
    return [records[number] for number in sorted(records, reverse=True)]


def _current(pipeline: Pipeline, store: CheckpointStore) -> Checkpoint | None:
    try:
        return store.load(pipeline.name)
    except CheckpointError as error:
        raise CheckpointError(f"{error} (a seek compares with the checkpoint that is there)") from error


def _check_expected(pipeline: Pipeline, before: Checkpoint | None, expected: str | None) -> None:
    at = str(before.coordinates) if before else None
    if expected and expected != at:
        raise CheckpointError(
            f"the checkpoint of pipeline {pipeline.name!r} is at {at}, and the seek was asked for when it was at "
            f"{expected}: a run committed in between. Nothing was changed; look again and seek."
        )


def _located(finder: Finder, target: SeekTarget) -> ResumePoint:
    if target.coordinates is not None:
        return finder.at(target.coordinates)
    if target.gtids is not None:
        return finder.after_gtids(target.gtids)
    if target.ts_seconds is not None:
        return finder.at_time(target.ts_seconds)
    return finder.earliest() if target.kind == "earliest" else finder.latest()
