"""rename: moves the checkpoint, commit log and schema history of a pipeline to its new name.

A killed rename can be repeated.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from changefeed.errors import CheckpointError, SettingsError, StaleCheckpointError, did_you_mean
from changefeed.kafka.commit_log.all_logs import read_commit_logs
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.commit_log.records import (
    AttemptRecord,
    BegunRecord,
    ClaimRecord,
    LogEntry,
    ProgressRecord,
    RenamedRecord,
    TakeoverRecord,
)
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.kafka.schema_log import SchemaLog
from changefeed.kafka.topics import commit_log_settings, ensure_topics
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.topic_name import commit_log_topic, schema_history_topic
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.topics import captured_routes, required_topics, state_topics
from changefeed.pipeline.windows import latest_checkpoint, renamed_message
from changefeed.settings.file import pipeline_names

_log = logging.getLogger(__name__)

_OF_A_RUN = (AttemptRecord.kind, ClaimRecord.kind, RenamedRecord.kind, TakeoverRecord.kind)
"""Kinds of records that are not moved, because they belong to attempts under the old name."""

LeaseOf = Callable[[str], Lease]
"""Returns the lease of an identity in the old commit log; the caller enters it."""


@dataclass(frozen=True)
class RenameResult:
    """The ``checkpoint`` under the new name, and the number of ``records`` of the commit log that were moved."""

    old: str
    checkpoint: Checkpoint
    records: int


def rename(connections: PipelineConnections, old: str, store: CheckpointStore) -> RenameResult:
    """Move the state of pipeline ``old`` to the pipeline of ``connections``, whose YAML already has the new name.

    1. A record of the rename is written to the old commit log. After it, no run under the old name publishes, and no
       run under the new name publishes before its checkpoint exists.
    2. The schema history, the commit log (all or nothing) and the checkpoint are copied, in this order.
    3. The moved records of the old commit log and the old checkpoint are removed.

    If a rename is killed, a repeated rename finishes it. A window, backfill or snapshot that was published in part is
    finished under the new name, without repeats. A process that slept under the old name is fenced. A continuous run
    under the old name ends with success before its next window.

    Raises:
    - SettingsError if the names cannot be used.
    - PipelineBusyError while a run, a backfill or a snapshot is alive; a continuous run, if its current window takes
      minutes.
    - CheckpointError if the pipeline has already published under the new name, or if a window cannot be finished under
      the new name.
    - FencedError or StaleCheckpointError if the rename slept for longer than its lease.
    """
    new, kafka = connections.pipeline.name, connections.kafka
    log, new_log = CommitLog(kafka, commit_log_topic(old), old), connections.commit_log()
    _check_names(connections, old, log, store)
    topics = connections.pipeline.topics
    logs = {log.topic: commit_log_settings(topics.replication_factor), **state_topics(connections.pipeline)}
    ensure_topics(kafka, logs, create=topics.create)
    settings = connections.pipeline.kafka

    def lease_of(identity: str) -> Lease:
        timeout = connections.window_seconds if identity == old else 0.0
        seconds, transaction_seconds = settings.lease_seconds, settings.transaction_timeout_seconds
        return Lease(
            kafka, log.topic, identity, seconds, timeout_seconds=timeout, transaction_seconds=transaction_seconds
        )

    with lease_of(old) as of_old, connections.lease() as of_new:
        fence(of_old)
        _stop_others(log, lease_of)
        state, stored = log.read(), store.load(old)
        begun = next((record.to for record in state.of(RenamedRecord)), None)
        moved = store.load(new)
        if begun not in (None, new):
            raise CheckpointError(renamed_message(old, str(begun)))
        if begun is None and (moved or new_log.read().latest_number):
            raise CheckpointError(_ran_already(old, new, moved))
        if moved is None:
            moved = replace(stored or _logged_checkpoint(old, state), pipeline=new)
            _check_topics(connections, old, state, moved)
            of_old.log().keep(RenamedRecord(new))
            fault_point.reach("after_rename_mark")
            _stop_others(log, lease_of)  # those that began before the RenamedRecord; none begins after it
            _copy_schemas(connections, old, store, of_new)
            records = {_rename_key(entry, old, new): _rename_value(entry, old, new) for entry in _moved_entries(log)}
            of_new.log().write({RenamedRecord.key_of(new): None, **records}, f"to take over the commit log of {old!r}")
            fault_point.reach("after_rename_log")
            store.replace(None, moved)
            fault_point.reach("after_rename_checkpoint")
        gone = {entry.record.key or b"": None for entry in _moved_entries(log)}
        of_old.log().write(gone, f"to end the rename to {new!r}")
        fault_point.reach("before_checkpoint_removal")
        _remove_checkpoint(store, old, stored, state)
    _log.info("pipeline %s is %s now, at %s", old, new, moved.coordinates)
    return RenameResult(old, moved, len(gone))


def _remove_checkpoint(store: CheckpointStore, old: str, stored: Checkpoint | None, state: CommitLogState) -> None:
    """Remove the checkpoint of ``old``, which was ``stored``. The task of a continuous run may have moved it over
    windows of ``state`` since. Raises StaleCheckpointError for a checkpoint of another pipeline of the old name."""
    try:
        store.remove(old, stored)
    except StaleCheckpointError:
        moved = store.load(old)
        if moved is None or moved.window not in state.seals:
            raise
        window = state.seals[moved.window].window
        if (window.server_uuid, window.head) != (moved.server_uuid, moved.coordinates):
            raise
        store.remove(old, moved)


def _stop_others(log: CommitLog, lease_of: LeaseOf) -> None:
    """Fence the backfills and snapshots of the old commit log that may be active, so that they can no longer publish.

    Fencing also ends their open transactions, which hide later records, so the log is read again after each round.
    Raises PipelineBusyError while one of them is alive.
    """
    stopped = {log.identity}
    while others := [name for name, state in log.read_all().items() if name not in stopped and _may_publish(state)]:
        for name in others:
            with lease_of(name) as lease:
                fence(lease)
        stopped.update(others)


def _may_publish(state: CommitLogState) -> bool:
    """Whether a backfill or snapshot may still publish, according to its ``state`` in the commit log."""
    is_finished = bool(state.seals) or any(record.finished for record in state.of(SnapshotRecord))
    return bool(state.of(ClaimRecord)) or not is_finished


def _check_names(connections: PipelineConnections, old: str, log: CommitLog, store: CheckpointStore) -> None:
    new = connections.pipeline.name
    if old in pipeline_names():
        raise SettingsError(
            f"{old!r} still has its own YAML file beside that of {new!r}. Nothing was changed. Rename the pipeline in "
            "the file, or remove the file, and run again."
        )
    if connections.pipeline.followers:
        raise SettingsError(
            f"pipeline {new!r} has followers, which store their position under its old name, and read its DDL topic "
            f"under that name: a rename would start them over. Nothing was changed. Name it {old!r} again; or remove "
            "`followers`, rename, and copy the source's tables to each follower again."
        )
    if store.load(old) is None and not log.exists():
        known = sorted({*store.pipelines(), *read_commit_logs(connections.kafka, but=new)})
        raise SettingsError(
            f"no pipeline {old!r} is known: it has neither a checkpoint in the store of {new!r} nor a commit log in "
            f"its cluster; known are {', '.join(known) or 'none'}{did_you_mean(old, known)}. Nothing was changed."
        )


def _ran_already(old: str, new: str, checkpoint: Checkpoint | None) -> str:
    existing = f"checkpoint, of window {checkpoint.window} at {checkpoint.coordinates}" if checkpoint else "commit log"
    return (
        f"pipeline {new!r} has a {existing} already: it ran before it was renamed from {old!r}, and may have lost "
        f"or repeated rows. Nothing was changed. `changefeed seek {new}` to the position of {old!r} publishes lost "
        "rows; or choose a name that no pipeline had."
    )


def _logged_checkpoint(old: str, state: CommitLogState) -> Checkpoint:
    """The checkpoint according to the commit log, which replaces a lost stored checkpoint.

    Raises CheckpointError if the log has no window.
    """
    found = latest_checkpoint(old, state)
    if found is None:
        raise CheckpointError(
            f"pipeline {old!r} has no checkpoint, and its commit log has no window: there is nothing to move."
        )
    return found[0]


def _check_topics(connections: PipelineConnections, old: str, state: CommitLogState, checkpoint: Checkpoint) -> None:
    """Check that a window that is published in part can be finished under the new name.

    Raises CheckpointError if the window would have other topics under the new name, or if it uses a schema registry,
    whose subjects may contain the pipeline's name.
    """
    new, finished = connections.pipeline.name, max((checkpoint.window, *state.seals, *state.seeks))
    given = {topic for (topic, _), progress in state.progress.items() if progress.window > finished}
    if not given:
        return
    with connections.session() as session:
        routes = captured_routes(connections.pipeline, session)
    others = sorted(given - set(required_topics(connections.pipeline, routes)))
    if others:
        why = f"to {others[0]!r}, and pipeline {new!r} publishes to other topics, so the topic would miss the rest"
    elif any(begun.schema_ids for begun in state.of(BegunRecord)):
        why = "with registered schemas, whose subjects have other names under the new name of the pipeline"
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


def _moved_entries(log: CommitLog) -> list[LogEntry]:
    """The records to move: the pipeline's own records, and the records of its snapshots and backfills."""
    return [entry for entry in log.entries() if entry.kind not in _OF_A_RUN]


def _rename_key(entry: LogEntry, old: str, new: str) -> bytes:
    parts = entry.parts
    if entry.kind != ProgressRecord.kind:  # its key has topics, whose names do not change
        parts = tuple(_rename_within(part, old, new) for part in parts)
    return json.dumps([_rename_identity(entry.identity, old, new), entry.kind, *parts], separators=(",", ":")).encode()


def _rename_value(entry: LogEntry, old: str, new: str) -> bytes | None:
    return (
        entry.record.value
        if entry.kind == ProgressRecord.kind
        else entry.stored_again(_rename_within(entry.plain(), old, new))
    )


def _rename_within(value: Any, old: str, new: str) -> Any:
    """``value`` with the new name of the pipeline, also in identities of snapshots and backfills."""
    if isinstance(value, Mapping):
        return {
            key: new if key == "pipeline" and each == old else _rename_within(each, old, new)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_rename_within(each, old, new) for each in value]
    if isinstance(value, str) and value.startswith((f"{old}.snapshot.", f"{old}.backfill.")):
        return _rename_identity(value, old, new)
    return value


def _rename_identity(identity: str, old: str, new: str) -> str:
    return new + identity[len(old) :] if identity == old or identity.startswith(f"{old}.") else identity
