"""Checks that the commit log knows all published windows: after a lost log or a rename a run would repeat or lose
rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from changefeed.errors import ChangefeedError, CheckpointError
from changefeed.kafka.commit_log.all_logs import read_commit_logs
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import FirstRecord, RenamedRecord
from changefeed.kafka.last_ids import last_ids
from changefeed.kafka.log_retention import check_log_retention
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.gtid import GtidSet
from changefeed.model.topic_name import commit_log_topic
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.topics import captured_routes, state_topics
from changefeed.pipeline.windows import (
    check_not_renamed,
    commit_log_state,
    describe_lost_checkpoint,
    last_stable_state,
    latest_checkpoint,
    renamed_message,
)
from changefeed.records.event_id import EventId
from changefeed.settings.file import pipeline_names
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import Head

_SHOWN = 3
_LOOKED_AT = 20
"""How many topics are searched for records. If all state is lost, a few topics are enough to show it."""


def check_commit_log(connections: PipelineConnections, checkpoint: Checkpoint | None, state: CommitLogState) -> None:
    """Raise CheckpointError if the commit log does not have the window of ``checkpoint``, or the pipeline was renamed.

    Raises what `check_log_retention` raises if Kafka deletes records of the commit log or of the pipeline's other logs.
    """
    check_log_retention(connections.kafka, list(state_topics(connections.pipeline)))
    check_not_renamed(connections.pipeline.name, state)
    if checkpoint is not None and (lost := describe_lost_log(connections, checkpoint, state)):
        raise CheckpointError(lost)


def state_for_checkpoint(connections: PipelineConnections, checkpoint: Checkpoint | None) -> CommitLogState:
    """The state of the commit log, at least up to the record of ``checkpoint``.

    It does not wait for open transactions if the record of ``checkpoint`` is before them. It waits if there is no
    checkpoint, or if its record may follow an open transaction, for example of a backfill. Raises what
    `commit_log_state` raises.
    """
    state = last_stable_state(connections)
    if checkpoint is not None and not describe_lost_log(connections, checkpoint, state):
        return state
    return commit_log_state(connections)


def describe_lost_log(connections: PipelineConnections, checkpoint: Checkpoint, state: CommitLogState) -> str:
    """An error text if the commit log does not have the window of ``checkpoint``; '' if it does.

    Seals, seeks and the first checkpoint are written to the log before the store gets the checkpoint, so the log must
    have them.
    """
    known, name = state.latest_number, checkpoint.pipeline
    if known >= checkpoint.window and (known or state.of(FirstRecord)):
        return ""
    found = f"ends with window {known}" if known else "has no record of it, or is not there"
    return (
        f"pipeline {name!r} has a checkpoint of window {checkpoint.window} at {checkpoint.coordinates}, and its commit "
        f"log {commit_log_topic(name)!r} in the cluster at {connections.kafka.bootstrap!r} {found}: which changes "
        "after that are in Kafka already is not known, so a run might publish them twice. Nothing was published. Look "
        "first whether kafka.connection leads to the cluster of the last run, and restore the topic from a copy. "
        f"Otherwise `changefeed seek {name} {checkpoint.coordinates} --why ...` begins a new commit log at the "
        "checkpoint: changes that a run published after it, and did not commit, are then published twice."
        + (
            " Which tables were parked (`on_table_error: park`) is lost with the log: take snapshots of those that an "
            "alert named."
            if connections.pipeline.on_table_error == "park"
            else ""
        )
    )


def check_first_run(
    connections: PipelineConnections,
    store: CheckpointStore,
    session: Session,
    uuid: str,
    head: Head,
    state: CommitLogState,
) -> tuple[str, ...]:
    """Check that a pipeline without a checkpoint, on server ``uuid``, has not published before under another name.

    Returns sentences about removed pipelines that may be this one. Raises CheckpointError in these cases:

    - Its own checkpoint was lost.
    - Another pipeline has published tables that this one captures, from the same source, to this one's topics.
    - A pipeline in the same state store has published such tables, and has no YAML file any more.
    - The topics have records of this server that no commit log knows.
    """
    pipeline = connections.pipeline
    logs = read_commit_logs(connections.kafka, but=pipeline.name)
    for name, other in logs.items():
        if [record.to for record in other.of(RenamedRecord)] == [pipeline.name]:  # the rename to this name was killed
            raise CheckpointError(renamed_message(name, pipeline.name))
    if lost := describe_lost_checkpoint(connections, state):
        raise CheckpointError(lost)
    present = pipeline_names()
    names = set(store.pipelines()) - present - {pipeline.name}
    gone = {name: checkpoint for name in sorted(names) if (checkpoint := _load(store, name))}
    here = _Here(pipeline, uuid, head, {route.topic for route in captured_routes(pipeline, session).values()})
    for name, other in logs.items():
        if refusal := here.refusal(name, other, gone.get(name), is_present=name in present):
            raise CheckpointError(refusal)
    if state.is_blank:
        own = set(here.topics) - {topic for other in logs.values() for topic, _ in other.progress}
        if refusal := here.unknown_records(last_ids(connections.kafka, sorted(own)[:_LOOKED_AT])):
            raise CheckpointError(refusal)
    published = {name for name, other in logs.items() if other.latest_number}
    return tuple(here.doubts(checkpoint for name, checkpoint in gone.items() if name not in published))


@dataclass(frozen=True)
class _Here:
    """The pipeline that has no checkpoint yet, its source and its topics."""

    pipeline: Pipeline
    uuid: str
    head: Head
    topics: Collection[str]

    def refusal(self, name: str, state: CommitLogState, stored: Checkpoint | None, *, is_present: bool) -> str | None:
        """Why the pipeline may not begin beside pipeline ``name``, whose commit log has ``state``; None if it may.

        ``stored`` is the checkpoint of ``name`` if it has no YAML file any more.
        """
        own = self.pipeline.name
        if state.of(RenamedRecord):
            return None
        found = latest_checkpoint(name, state)
        if found is None or not self._same_source(found[0]):
            return None
        shared = sorted({topic for topic, _ in state.progress} & set(self.topics))
        published = {table for manifest in state.seals.values() for table in (*manifest.rows, *manifest.filtered)}
        tables = sorted(table for table in published if self.pipeline.tables.matches(*table.split(".", 1)))
        if (published and not tables) or not (shared or (tables and stored)):
            return None
        checkpoint, origin = found
        what = f"topics {_list_names(shared)}" if shared else f"tables {_list_names(tables)}"
        begin = (
            f"pipeline {own!r} has no checkpoint and no commit log, and pipeline {name!r} has published {what} from "
            f"the same server, up to {checkpoint.coordinates} ({origin})"
        )
        if is_present:
            return (
                f"{begin}: each change would be there twice. Nothing was published. Give one of them other tables, or "
                f"a topics.template of its own, such as '{{pipeline}}.{{database}}.{{table}}'."
            )
        return (
            f"{begin}, and has no YAML file any more. If it was renamed, a run from `start: {self.pipeline.start}` "
            f"would lose or repeat rows. Nothing was published. `changefeed rename {name} {own}` takes its checkpoint, "
            f"commit log and schema history along. If {own!r} is to begin anew beside what is there, `changefeed seek "
            f"{own} latest --why ...`, or earliest, says so."
        )

    def unknown_records(self, ids: Mapping[str, EventId]) -> str | None:
        """Why the pipeline may not begin if its topics end with the changes ``ids`` that no commit log knows; None if
        it may."""
        name = self.pipeline.name
        for topic, event in ids.items():
            if event.server == self.uuid:
                return (
                    f"pipeline {name!r} has no checkpoint and no commit log, and its topic {topic!r} has records of "
                    f"this server, as of {event.origin}:{event.position}, that no commit log in the cluster knows: "
                    f"both were lost, and a run from `start: {self.pipeline.start}` would lose or repeat rows. Nothing "
                    "was published. Look whether kafka.connection and checkpoint.store are those of the last run, and "
                    f"restore what is lost if there is a copy. Otherwise `changefeed seek {name} FILE:POSITION --why "
                    "...` to the end of the last transaction in the topics (the header changefeed.id says "
                    "SERVER/FILE:POSITION/ROW), or to latest or earliest, says where it goes on."
                )
        return None

    def doubts(self, gone: Iterator[Checkpoint]) -> Iterator[str]:
        """A sentence for each checkpoint of a removed pipeline without windows that may be this one."""
        for checkpoint in gone:
            if self._same_source(checkpoint) and checkpoint.coordinates != self.head.coordinates:
                name, own = checkpoint.pipeline, self.pipeline.name
                yield (
                    f"pipeline {own!r} has no checkpoint yet, and the state store has one of pipeline {name!r}, window "
                    f"{checkpoint.window} at {checkpoint.coordinates} of the same server, which has neither a YAML "
                    f"file nor a window in a commit log: if {own!r} is that pipeline, `changefeed rename {name} {own}` "
                    f"before its first run; it would begin at its `start: {self.pipeline.start}` otherwise"
                )

    def _same_source(self, other: Checkpoint) -> bool:
        if other.server_uuid == self.uuid:
            return True
        known = GtidSet.parse(other.gtids)
        return bool(known) and GtidSet.parse(self.head.gtids).contains(known)


def _load(store: CheckpointStore, name: str) -> Checkpoint | None:
    try:
        return store.load(name)
    except ChangefeedError:
        return None  # the runs of that other pipeline report the error


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
