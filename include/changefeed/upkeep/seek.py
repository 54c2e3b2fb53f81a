"""seek: move a checkpoint to other coordinates, forwards or back, and keep a record of it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from changefeed.binlog.search.finder import Finder, ResumePoint, bytes_between
from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import CheckpointError, SettingsError
from changefeed.kafka.fencing import fence
from changefeed.kafka.log_record import SoughtRecord
from changefeed.kafka.topics import commit_log_settings, ensure_topics
from changefeed.mysql import source
from changefeed.mysql.binlogs import ServerBinlogs
from changefeed.pipelines.pipeline import Pipeline
from changefeed.seek import SeekRecord, SeekTarget

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SeekPlan:
    """What a seek would do. ``files`` are those that are skipped or repeated, whole or in part."""

    pipeline: str
    asked: str
    before: Checkpoint | None
    to: ResumePoint
    server_uuid: str
    skipped_bytes: int
    repeated_bytes: int
    files: tuple[str, ...]

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
            "effect": self.effect,
        }

    @property
    def effect(self) -> str:
        """What happens, in one sentence."""
        where = f"in {self.files[0]} to {self.files[-1]}" if self.files else ""
        if self.repeated_bytes:
            return f"{self.repeated_bytes:,} bytes of binlog {where} will be published again: consumers see them twice"
        if self.skipped_bytes:
            return f"{self.skipped_bytes:,} bytes of binlog {where} will never be published by this pipeline"
        if self.before and self.before.server_uuid != self.server_uuid:
            return "the checkpoint moves to another server, whose binlog cannot be compared with the old one's"
        return "nothing is skipped or repeated"


def plan_seek(endpoints: Endpoints, target: str, store: CheckpointStore, *, expected: str | None = None) -> SeekPlan:
    """Find ``target`` in the source's binlog and say what going there skips or repeats. Changes nothing.

    ``expected`` is where the person who asks saw the checkpoint (FILE:POSITION), None where that does not matter.

    Raises SettingsError for a target that cannot be read or is no commit boundary, BinlogGoneError for one that the
    server does not have any more, naming what it has; CheckpointError when the checkpoint is not at ``expected``.
    """
    pipeline, wanted = endpoints.pipeline, SeekTarget.parse(target)
    before = _current(pipeline, store)
    _check_expected(pipeline, before, expected)
    with endpoints.session() as session:
        uuid = source.server_uuid(session)
        binlogs = ServerBinlogs(session)
        to = _located(Finder(binlogs), wanted)
        files = list(binlogs.files())
    skipped = repeated = 0
    names: tuple[str, ...] = ()
    if before and before.server_uuid == uuid and before.coordinates.base == to.coordinates.base:
        distance = bytes_between(files, before.coordinates, to.coordinates)
        skipped, repeated = max(0, distance), max(0, -distance)
        low, high = sorted((before.coordinates, to.coordinates))
        if distance:
            names = tuple(file.name for file in files if low.number <= file.number <= high.number)
    return SeekPlan(pipeline.name, target, before, to, uuid, skipped, repeated, names)


def seek(endpoints: Endpoints, planned: SeekPlan, store: CheckpointStore, *, who: str, why: str) -> SeekRecord:
    """Do what ``planned`` says, if the checkpoint is still where it was then.

    While a run is alive it is refused. Every earlier attempt is fenced, then the record is written, then the progress
    of what shall be repeated is forgotten, and last the checkpoint moves. A seek that dies in between is done again;
    until then the pipeline goes on from its old checkpoint, and may repeat what an unfinished window had published.

    Raises PipelineBusyError while a run is alive, StaleCheckpointError when the checkpoint moved since the plan,
    SettingsError without a reason.
    """
    check_reason(why)
    pipeline, log = endpoints.pipeline, endpoints.commit_log()
    if store.load(pipeline.name) != planned.before:
        from changefeed.checkpoint import stale

        raise stale(pipeline.name, planned.before, store.load(pipeline.name))
    ensure_topics(endpoints.kafka, {log.topic: commit_log_settings(pipeline.topics.replication_factor)})
    with endpoints.lease() as lease:
        fence(endpoints.kafka, pipeline.name, 1, log.topic, lease.attempt)
        state = log.read()
        number = max(planned.before.window if planned.before else 0, state.latest_number) + 1
        record = SeekRecord(
            number=number,
            at_ms=int(time.time() * 1000),
            who=who,
            why=why,
            asked=planned.asked,
            before=str(planned.before.coordinates) if planned.before else None,
            before_gtids=planned.before.gtids if planned.before else "",
            to=str(planned.to.coordinates),
            to_gtids=planned.to.gtids,
            skipped_bytes=planned.skipped_bytes,
            repeated_bytes=planned.repeated_bytes,
            server_uuid=planned.server_uuid,
        )
        log.keep(SoughtRecord(record))
        same = planned.before is not None and planned.before.server_uuid == planned.server_uuid
        if not same or not planned.skipped_bytes:
            log.forget({name for name, _ in state.progress}, state)
        to = Checkpoint(
            pipeline.name, number, planned.server_uuid, planned.to.coordinates, planned.to.gtids, record.at_ms
        )
        store.replace(planned.before, to)
    _log.info("pipeline %s: %s sought from %s to %s: %s", pipeline.name, who, record.before, record.to, planned.effect)
    return record


def check_reason(why: str) -> None:
    """Raises SettingsError where the reason of a seek is empty."""
    if not why.strip():
        raise SettingsError("a seek needs a reason (why): it is what the next person reads in the record")


def seeks(endpoints: Endpoints) -> list[SeekRecord]:
    """The pipeline's seeks, latest first; raises TopicError before its first run, when it has no commit log."""
    records = endpoints.commit_log().read().seeks
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
