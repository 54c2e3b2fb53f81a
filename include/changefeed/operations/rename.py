"""rename: checkpoint, commit log and schema history of a pipeline moved to its new name, once, whatever is killed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from changefeed.errors import CheckpointError, SettingsError, did_you_mean
from changefeed.kafka.commit_log.all_logs import read_commit_logs
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.commit_log.records import (
    AttemptRecord,
    BegunRecord,
    ClaimRecord,
    LogEntry,
    ProgressRecord,
    RenamedRecord,
    stored_value,
)
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.kafka.schema_log import SchemaLog, schema_history_settings
from changefeed.kafka.topics import commit_log_settings, ensure_topics
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.topic_name import commit_log_topic, schema_history_topic
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.topics import wanted_topics
from changefeed.pipeline.windows import latest_checkpoint, renamed_away
from changefeed.settings.file import pipeline_names

_log = logging.getLogger(__name__)

_OF_A_RUN = (AttemptRecord.kind, ClaimRecord.kind, RenamedRecord.kind)
"""Records that stay with the old name: nothing of that may publish any more."""

LeaseOf = Callable[[str], Lease]
"""The lease of an identity in the old commit log, still to be entered."""


@dataclass(frozen=True)
class Renamed:
    """What was done: the ``checkpoint`` under the new name, and how many ``records`` of the commit log went there."""

    old: str
    checkpoint: Checkpoint
    records: int


def rename(connections: PipelineConnections, old: str, store: CheckpointStore) -> Renamed:
    """Move what is known of pipeline ``old`` to the pipeline of ``connections``, whose YAML has the new name already.

    First the old commit log says that the pipeline is renamed: from then on no run under the old name publishes, and
    none under the new name before its checkpoint is there. Then the schema history, the commit log (all or nothing)
    and the checkpoint are copied, in this order, and last the old ones are removed. So a rename that was killed is
    ended by another one, and a window that was published in part is finished under the new name, each message once.
    So are backfills and snapshots: those that slept under the old name publish nothing more.

    Raises SettingsError where the names do not fit, PipelineBusyError while a run, a backfill or a snapshot is alive,
    CheckpointError where the new name has published itself, or a window cannot be finished under it. One that slept for
    longer than its lease raises FencedError or StaleCheckpointError.
    """
    new, kafka = connections.pipeline.name, connections.kafka
    log, new_log = CommitLog(kafka, commit_log_topic(old), old), connections.commit_log()
    _check_names(connections, old, log, store)
    factor = connections.pipeline.topics.replication_factor
    logs = {each.topic: commit_log_settings(factor) for each in (log, new_log)}
    schemas = {schema_history_topic(new): schema_history_settings(factor)}
    ensure_topics(kafka, logs | schemas, create=connections.pipeline.topics.create)
    settings = connections.pipeline.kafka

    def lease_of(identity: str) -> Lease:
        seconds, transaction_seconds = settings.lease_seconds, settings.transaction_timeout_seconds
        return Lease(kafka, log.topic, identity, seconds, transaction_seconds=transaction_seconds)

    with lease_of(old) as of_old, connections.lease() as of_new:
        fence(of_old)
        _stop_others(log, lease_of)
        state, stored = log.read(), store.load(old)
        begun = next((record.to for record in state.of(RenamedRecord)), None)
        moved = store.load(new)
        if begun not in (None, new):
            raise CheckpointError(renamed_away(old, str(begun)))
        if begun is None and (moved or new_log.read().latest_number):
            raise CheckpointError(_ran_already(old, new, moved))
        if moved is None:
            moved = replace(stored or _logged_checkpoint(old, state), pipeline=new)
            _check_topics(connections, old, state, moved)
            of_old.log().keep(RenamedRecord(new))
            fault_point.reached("after_rename_mark")
            _stop_others(log, lease_of)  # those that began before that; from then on none begins
            _copy_schemas(connections, old, store, of_new)
            records = {_renamed_key(entry, old, new): _renamed_value(entry, old, new) for entry in _moving(log)}
            of_new.log().write({RenamedRecord.key_of(new): None, **records}, f"to take over the commit log of {old!r}")
            fault_point.reached("after_rename_log")
            store.replace(None, moved)
            fault_point.reached("after_rename_checkpoint")
        gone = {entry.record.key or b"": None for entry in _moving(log)}
        of_old.log().write(gone, f"to end the rename to {new!r}")
        fault_point.reached("before_checkpoint_removal")
        store.remove(old, stored)
    _log.info("pipeline %s is %s now, at %s", old, new, moved.coordinates)
    return Renamed(old, moved, len(gone))


def _stop_others(log: CommitLog, lease_of: LeaseOf) -> None:
    """Take over the backfills and snapshots of the old commit log that may be at work, so that none publishes any more.

    It does not wait for transactions that they left open, which hide what is after them until they are taken over.
    Raises PipelineBusyError while one is alive.
    """
    stopped = {log.identity}
    while others := [name for name, state in log.read_all().items() if name not in stopped and _may_publish(state)]:
        for name in others:
            with lease_of(name) as lease:
                fence(lease)
        stopped.update(others)


def _may_publish(state: CommitLogState) -> bool:
    """Whether a backfill or a snapshot, of which the log says ``state``, is not finished or did not end in order."""
    is_finished = bool(state.seals) or any(record.finished for record in state.of(SnapshotRecord))
    return bool(state.of(ClaimRecord)) or not is_finished


def _check_names(connections: PipelineConnections, old: str, log: CommitLog, store: CheckpointStore) -> None:
    new = connections.pipeline.name
    if old in pipeline_names():
        raise SettingsError(
            f"{old!r} is a pipeline of its own, with a YAML file beside that of {new!r}: rename it there, or remove "
            "its file, before its checkpoint moves. Nothing was changed."
        )
    if connections.pipeline.followers:
        raise SettingsError(
            f"pipeline {new!r} has followers, which keep how far they have come by its old name, and read the topic of "
            f"its DDL by that: a rename would begin them anew. Nothing was changed. Name it {old!r} again; or leave "
            "out `followers`, rename, and copy the source's tables to each follower anew."
        )
    if store.load(old) is None and not log.exists():
        known = sorted({*store.pipelines(), *read_commit_logs(connections.kafka, but=new)})
        raise SettingsError(
            f"no pipeline {old!r} is known: it has neither a checkpoint in the store of {new!r} nor a commit log in "
            f"its cluster; known are {', '.join(known) or 'none'}{did_you_mean(old, known)}. Nothing was changed."
        )


def _ran_already(old: str, new: str, checkpoint: Checkpoint | None) -> str:
    of_its_own = (
        f"checkpoint, of window {checkpoint.window} at {checkpoint.coordinates}" if checkpoint else "commit log"
    )
    return (
        f"pipeline {new!r} has a {of_its_own} already: it ran before it was renamed from {old!r}, and may have lost "
        f"or repeated rows. Nothing was changed. `changefeed seek {new}` to where {old!r} was makes up for rows that "
        "were lost; or choose a name that no pipeline had."
    )


def _logged_checkpoint(old: str, state: CommitLogState) -> Checkpoint:
    """The checkpoint that the commit log stands for, where the stored one was lost."""
    found = latest_checkpoint(old, state)
    if found is None:
        raise CheckpointError(
            f"pipeline {old!r} has no checkpoint, and its commit log has no window: there is nothing to move."
        )
    return found[0]


def _check_topics(connections: PipelineConnections, old: str, state: CommitLogState, checkpoint: Checkpoint) -> None:
    """Raises CheckpointError where a window that is published in part goes to other topics under the new name, or is of
    schemas of a registry, in which the pipeline's name may be."""
    new, finished = connections.pipeline.name, max((checkpoint.window, *state.seals, *state.seeks))
    given = {topic for (topic, _), progress in state.progress.items() if progress.window > finished}
    if not given:
        return
    with connections.session() as session:
        others = sorted(given - set(wanted_topics(connections.pipeline, session)))
    if others:
        why = f"to {others[0]!r}, and pipeline {new!r} publishes to other topics: the rest of it would be missing there"
    elif any(begun.schema_ids for begun in state.of(BegunRecord)):
        why = "by registered schemas, which have other names under another name of the pipeline"
    else:
        return
    raise CheckpointError(
        f"a window of pipeline {old!r} after window {finished} was published in part {why}. Nothing was changed. "
        f"Name the pipeline {old!r} again, run it once, which finishes the window, and then rename it."
    )


def _copy_schemas(connections: PipelineConnections, old: str, store: CheckpointStore, lease: Lease) -> None:
    new = connections.pipeline.name
    history = SchemaLog(connections.kafka, schema_history_topic(old), old).load()
    if history is not None:
        connections.schema_log().save(history, lease.writer)
    text = store.load_schemas(old)
    if text is not None:
        store.save_schemas(new, text)


def _moving(log: CommitLog) -> list[LogEntry]:
    """The records that go along: the pipeline's own, and those of its snapshots and backfills."""
    return [entry for entry in log.entries() if entry.kind not in _OF_A_RUN]


def _renamed_key(entry: LogEntry, old: str, new: str) -> bytes:
    parts = entry.parts
    if entry.kind != ProgressRecord.kind:  # those are topics, whose names stay
        parts = tuple(_renamed(part, old, new) for part in parts)
    return json.dumps([_identity(entry.identity, old, new), entry.kind, *parts], separators=(",", ":")).encode()


def _renamed_value(entry: LogEntry, old: str, new: str) -> bytes | None:
    return entry.record.value if entry.kind == ProgressRecord.kind else stored_value(_renamed(entry.plain(), old, new))


def _renamed(value: Any, old: str, new: str) -> Any:
    """``value`` with the name of its pipeline, and the identities of snapshots and backfills, changed."""
    if isinstance(value, Mapping):
        return {
            key: new if key == "pipeline" and each == old else _renamed(each, old, new) for key, each in value.items()
        }
    if isinstance(value, list):
        return [_renamed(each, old, new) for each in value]
    if isinstance(value, str) and value.startswith((f"{old}.snapshot.", f"{old}.backfill.")):
        return _identity(value, old, new)
    return value


def _identity(identity: str, old: str, new: str) -> str:
    return new + identity[len(old) :] if identity == old or identity.startswith(f"{old}.") else identity
