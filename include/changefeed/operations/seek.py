"""seek: moves a checkpoint forwards or back, and stores a record of the move."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.errors import CheckpointError, SettingsError, StaleCheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.fencing import fence
from changefeed.model.checkpoint import Checkpoint, CheckpointStore, stale
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.seek import SeekRecord, SeekTarget, UnfinishedWindow
from changefeed.model.window import BinlogFile, Window, bytes_between
from changefeed.pipeline.connections import PipelineConnections, ensure_commit_log
from changefeed.pipeline.known_progress import describe_lost_log
from changefeed.pipeline.parking import check_none_parked
from changefeed.pipeline.plan import other_binlog, plan
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.pipeline.windows import checkpoint_after_seek, commit_log_state, latest_checkpoint
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.request import check_reason
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs

_log = logging.getLogger(__name__)
_MOVES = 5


@dataclass(frozen=True)
class SeekPlan:
    """The effect of a seek before it is executed.

    - ``files``: the binlog files that are skipped or repeated, completely or in part.
    - ``repeated_bytes``: the bytes from the target to the last event with records in Kafka. They include records of
      ``unfinished`` windows, which a seek discards.
    - ``gone``: the skipped range that the server has purged, or ''. With such a range, ``skipped_bytes`` is a lower
      bound.
    - ``not_known``: why some figures are not known.
    - ``last_seek``: the number of the last seek before the plan.
    - ``lost``: if the checkpoint was lost, the record that has the position instead.
    - ``undo``: the target of a seek back; None if the server does not have that position.
    - ``finish``: whether ``unfinished`` windows are published and committed before the seek; bytes and ``undo`` are
      those after that.
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
    last_seek: int = 0
    gone: str = ""
    not_known: str = ""
    lost: str = ""
    undo: str | None = None
    finish: bool = False

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values, for XComs and the REST API."""
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
        """The effect of the seek, in one sentence."""
        where = "in " + " to ".join(dict.fromkeys((self.files[0], self.files[-1]))) if self.files else ""
        parts = [self.lost] if self.lost else []
        if self.finish:
            parts += [f"{window}, is published and committed first" for window in self.unfinished]
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
        if not self.finish:
            parts += [f"{window}, is given up with {window.messages:,} messages in Kafka" for window in self.unfinished]
        return "; ".join(parts)


@dataclass(frozen=True)
class _PublishedRange:
    """How far the pipeline has published, according to its commit log.

    It has published everything before ``complete_to``, and nothing after ``partial_to``.
    """

    complete_to: BinlogCoordinates
    partial_to: BinlogCoordinates
    unfinished: tuple[UnfinishedWindow, ...]


def plan_seek(
    connections: PipelineConnections,
    target: str,
    store: CheckpointStore,
    *,
    expected: str | None = None,
    finish: bool = False,
) -> SeekPlan:
    """Return what a seek to ``target`` would skip or repeat in the source's binlog. Changes nothing.

    ``expected`` is the checkpoint (FILE:POSITION) that the user saw; None accepts any checkpoint. With ``finish``, the
    unfinished windows are published and committed before the seek; without it, they are given up.

    Raises:
    - SettingsError if the target cannot be parsed, is not a commit boundary, or has GTIDs that the source never
      executed.
    - BinlogGoneError if the server has purged the target; the message names the existing files.
    - CheckpointError if the checkpoint is not at ``expected``.
    - SettingsError if a table is parked, because its missing changes are found from its windows.
    """
    pipeline, parsed = connections.pipeline, SeekTarget.parse(target)
    before = _load_checkpoint(pipeline, store)
    _check_expected(pipeline, before, expected)
    state = commit_log_state(connections)
    check_none_parked(pipeline.name, state, "seek")
    current, origin = _find_current_position(pipeline, before, state)
    with connections.session() as session:
        uuid = source.server_uuid(session)
        binlogs = ServerBinlogs(session)
        _check_executed(parsed, GtidSet.parse(binlogs.end().gtids))
        to = _locate(Finder(binlogs), parsed)
        files = list(binlogs.files())
        other = _other_binlog(current, uuid, binlogs) if current else ""
    last_seek = max(state.seeks, default=0)
    planned = SeekPlan(pipeline.name, target, before, to, uuid, 0, 0, (), last_seek=last_seek, finish=finish)
    if current is None:
        return replace(
            planned,
            not_known="the pipeline has no checkpoint, and no window in its commit log: what it has published, if "
            "anything, is not known",
        )
    published = _find_published_range(current, state, uuid, finish=finish)
    if origin:
        planned = replace(
            planned, lost=f"the checkpoint was lost; by {origin} all up to {current.coordinates} is published"
        )
    planned = replace(planned, unfinished=_given_up(pipeline, published.unfinished))
    if other:
        return replace(planned, not_known=f"what is skipped or repeated is not known: {other}")
    if describe_lost_log(connections, current, state):
        planned = replace(
            planned,
            not_known=f"the commit log does not have window {current.window}: what a run published after "
            f"{current.coordinates} and did not commit is not known, and is published twice",
        )
    begin = published.complete_to if finish or pipeline.windows is not None else current.coordinates
    return _compare(planned, published, begin, files)


def _given_up(pipeline: Pipeline, unfinished: Sequence[UnfinishedWindow]) -> tuple[UnfinishedWindow, ...]:
    """The windows that a seek gives up: with `windows`, the checkpoint is behind sealed ones by some seconds."""
    return tuple(window for window in unfinished if pipeline.windows is None or not window.sealed)


def _compare(
    planned: SeekPlan, published: _PublishedRange, current: BinlogCoordinates, files: Sequence[BinlogFile]
) -> SeekPlan:
    """``planned`` with the bytes and files that it skips or repeats. All positions are in one binlog, of ``files``."""
    to, oldest = planned.to.coordinates, files[0]
    skipped = repeated = 0
    gone = ""
    if published.complete_to < to:
        begin = published.complete_to
        if begin.number < oldest.number:
            last = f" to the end of file {oldest.number - 1}" if begin.number + 1 < oldest.number else " on"
            gone, begin = f"what was in {begin.file} from {begin.position}{last}", BinlogCoordinates(oldest.name, 0)
        skipped = bytes_between(files, begin, to)
    if to < published.partial_to:
        repeated = bytes_between(files, to, published.partial_to)
    low, *_, high = sorted((published.complete_to, published.partial_to, to))
    names = tuple(file.name for file in files if low.number <= file.number <= high.number)
    return replace(
        planned,
        skipped_bytes=skipped,
        repeated_bytes=repeated,
        files=names if skipped or repeated else (),
        gone=gone,
        undo=str(current) if current.number >= oldest.number else None,
    )


def _find_current_position(
    pipeline: Pipeline, before: Checkpoint | None, state: CommitLogState
) -> tuple[Checkpoint | None, str]:
    """The pipeline's checkpoint and ''. If it was lost: the commit log's checkpoint, and the name of its record."""
    if before is not None:
        return before, ""
    return latest_checkpoint(pipeline.name, state) or (None, "")


def _other_binlog(current: Checkpoint, uuid: str, binlogs: ServerBinlogs) -> str:
    """Why the coordinates of the checkpoint and of server ``uuid`` cannot be compared; '' if they can."""
    if current.server_uuid != uuid:
        return "the checkpoint moves to another server, whose binlog cannot be compared with the old one's"
    at, files, end = current.coordinates, binlogs.files(), binlogs.end()
    if at.base != end.coordinates.base:
        return f"binlogs are named {end.coordinates.base!r} now, and were {at.base!r}"
    if end.coordinates < at:
        return f"the server's binlog ends before {at}: it was reset, or restored to an older point"
    if at.number < files[0].number:
        lost = GtidSet.parse(current.gtids).subtract(GtidSet.parse(end.gtids))
        return f"the server's binlog is another one since: it misses {lost}" if lost else ""
    difference = other_binlog(current, source.Head(end.coordinates, end.gtids), binlogs)
    return f"the server's binlog is another one since: {difference}" if difference else ""


def _find_published_range(
    before: Checkpoint, state: CommitLogState, server_uuid: str, *, finish: bool = False
) -> _PublishedRange:
    """The published range after ``before`` according to the commit log; with ``finish``, as if the unfinished windows
    were published."""
    since, complete_to = before.window, before.coordinates
    if (
        latest_seek := max(state.seeks, default=0)
    ) > since:  # the seek died before it moved the checkpoint, or an older store was restored
        since, complete_to = latest_seek, BinlogCoordinates.parse(state.seeks[latest_seek].to)
    unfinished = []
    for manifest in [state.seals[number] for number in state.seals if number > since]:
        messages = sum(receipt.messages + receipt.already_there for receipt in manifest.topics)
        unfinished.append(_unfinished_window(manifest.window, messages, sealed=True))
        if manifest.window.server_uuid == server_uuid:
            complete_to = max(complete_to, manifest.window.head)
    partial_to = complete_to
    for number, window in state.begun.items():
        if number > since:
            given = [progress for progress in state.progress.values() if progress.window == number]
            unfinished.append(_unfinished_window(window, sum(progress.messages for progress in given), sealed=False))
            if window.server_uuid == server_uuid and finish:
                complete_to = max(complete_to, window.head)
            elif window.server_uuid == server_uuid:
                partial_to = max(
                    [partial_to, *(BinlogCoordinates(progress.origin, progress.position) for progress in given)]
                )
    return _PublishedRange(complete_to, max(complete_to, partial_to), tuple(unfinished))


def _unfinished_window(window: Window, messages: int, *, sealed: bool) -> UnfinishedWindow:
    return UnfinishedWindow(window.number, str(window.start), str(window.head), sealed, messages)


def unfinished_run(connections: PipelineConnections, store: CheckpointStore) -> PlannedRun | None:
    """A run that finishes the unfinished windows of earlier runs before a seek; None if there are no such windows.

    Raises as `plan` does.
    """
    planned = plan(connections, store)
    return PlannedRun(planned.unfinished, planned.expected, planned.lag_bytes) if planned.unfinished else None


def seek(
    connections: PipelineConnections, planned: SeekPlan, store: CheckpointStore, *, who: str, why: str
) -> SeekRecord:
    """Execute ``planned``, if the checkpoint did not move since, and return the record of the seek.

    1. Fence every earlier attempt.
    2. Write the record and remove the published progress, in one transaction. Unfinished windows are discarded; the
       record has their numbers.
    3. Move the checkpoint. If the seek dies before this step, the next run does it.

    Raises:
    - SettingsError without a reason.
    - PipelineBusyError while a run is alive; a continuous one, if its current window takes minutes.
    - StaleCheckpointError if the checkpoint moved since the plan.
    - CheckpointError if the pipeline published more since the plan. A continuous run may do both, unless it published
      past the target of a seek that was to skip changes.
    - FencedError if the seek slept for longer than its lease before step 2.
    """
    check_reason(why, "a seek")
    pipeline = connections.pipeline
    ensure_commit_log(connections)
    with connections.lease_between_windows() as lease:
        fence(lease)
        log = lease.log()
        before, state = store.load(pipeline.name), log.read()
        check_none_parked(pipeline.name, state, "seek")
        if pipeline.windows is not None:
            planned = _plan_again(connections, planned, store)
            before = planned.before
        elif before != planned.before:
            raise stale(pipeline.name, planned.before, before)
        current, _ = _find_current_position(pipeline, before, state)
        unfinished = _find_published_range(current, state, planned.server_uuid).unfinished if current else ()
        unfinished = _given_up(pipeline, unfinished)
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
        _move_checkpoint(store, before, checkpoint_after_seek(pipeline.name, record))
    effect = planned.effect
    _log.info("pipeline %s: seek by %s from %s to %s: %s", pipeline.name, who, record.before, record.to, effect)
    return record


def _plan_again(connections: PipelineConnections, planned: SeekPlan, store: CheckpointStore) -> SeekPlan:
    """``planned`` with what it skips and repeats now, as a continuous run publishes meanwhile; call it under the lease.

    Raises StaleCheckpointError after another seek, and CheckpointError if the seek would now lead to another server,
    repeat changes instead of skipping some, or give up a window that was not in the plan.
    """
    again = plan_seek(connections, str(planned.to.coordinates), store)
    if again.last_seek != planned.last_seek:
        raise stale(planned.pipeline, planned.before, again.before)
    planned_windows = {window.number for window in planned.unfinished}
    gtids, planned_gtids = (GtidSet.parse(point.gtids) for point in (again.to, planned.to))
    if again.server_uuid != planned.server_uuid or gtids != planned_gtids:
        problem = f"{planned.to.coordinates} is another position now, on server {again.server_uuid}"
    elif again.repeated_bytes and not planned.repeated_bytes and not planned.not_known:
        problem = f"the continuous run has published past {planned.to.coordinates}, which would be repeated"
    elif more := [str(window) for window in again.unfinished if window.number not in planned_windows]:
        problem = f"unfinished are {', '.join(more)}"
    else:
        return replace(again, asked=planned.asked)
    raise CheckpointError(
        f"the effect of the seek of pipeline {planned.pipeline!r} is not the planned one any more: {problem}. Nothing "
        "was changed; look again and seek."
    )


def _move_checkpoint(store: CheckpointStore, expected: Checkpoint | None, target: Checkpoint) -> None:
    """Move the checkpoint to ``target``, whose record is in the commit log.

    Another run may move it at the same time: to windows that are sealed before the record, or, once it has read the
    record, to ``target`` or further.
    """
    for _ in range(_MOVES):
        try:
            return store.replace(expected, target)
        except StaleCheckpointError:
            expected = store.load(target.pipeline)
            if expected is not None and expected.window >= target.window:
                return None
    return store.replace(expected, target)


def seeks(connections: PipelineConnections) -> list[SeekRecord]:
    """The pipeline's seeks, latest first. Raises TopicError before the first run: there is no commit log yet."""
    records = connections.commit_log().read().seeks
    return [records[number] for number in sorted(records, reverse=True)]


def _load_checkpoint(pipeline: Pipeline, store: CheckpointStore) -> Checkpoint | None:
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


def _check_executed(target: SeekTarget, executed: GtidSet) -> None:
    """Raises SettingsError for GTIDs that the server never executed: the seek would skip all of its transactions."""
    if target.gtids is not None and (unknown := target.gtids.subtract(executed)):
        raise SettingsError(
            f"the source never executed transactions {unknown}: it has {str(executed) or 'none with a GTID'}. A seek "
            "by GTIDs needs a set of transactions that the source has, as in @@gtid_executed of MySQL or "
            "@@gtid_binlog_pos of MariaDB. Give such a set; or FILE:POSITION, a time, earliest or latest."
        )


def _locate(finder: Finder, target: SeekTarget) -> ResumePoint:
    if target.coordinates is not None:
        return finder.at(target.coordinates)
    if target.gtids is not None:
        return finder.after_gtids(target.gtids)
    if target.ts_seconds is not None:
        return finder.at_time(target.ts_seconds)
    return finder.earliest() if target.kind == "earliest" else finder.latest()
