"""The snapshots that a pipeline takes by itself: the first one of `start: snapshot`, and those of new tables.

`changefeed run` and Airflow's scheduled runs of the snapshot DAG ask `due_snapshot`, and take or continue the result.

1. The first snapshot, of all tables, has the run id `first`. See `is_due`.
2. With `snapshot: {new_tables: true}`, the captured tables that are not complete (`pipeline.complete_tables`) get a
   snapshot with the run id `new_1`, `new_2`, …:

   - Before the first run, and before the first window with the setting, nothing is due.
   - A snapshot of new tables that is not finished is continued first. Tables that are found meanwhile get the next one.
   - If settings that shape messages changed since it began, its rows would be of two kinds: the next one is taken in
     its place, from the beginning.
   - A table of which somebody took a snapshot of all rows meanwhile is left out.
   - A parked table waits until it is not parked any more, and the other tables do not wait for it; a table that is
     dropped meanwhile is left out.
   - While a window is published in part with other settings, a snapshot raises an error: the window is finished first.
   - A paused pipeline takes none in Airflow, as its snapshot waits for the windows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.model.run_identity import snapshot_identity
from changefeed.model.user_pattern import MOST
from changefeed.pipeline.complete_tables import (
    captured_names,
    complete_tables,
    incomplete_tables,
    pipeline_snapshots,
)
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.parking import parked_tables
from changefeed.pipeline.schema_history import load_history
from changefeed.pipeline.windows import last_stable_state
from changefeed.settings.message_rules import message_rules
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest

FIRST_RUN = "first"
"""The run id of the first snapshot, whoever starts it. Its identity is thus the same in Airflow and in the command."""
_NEW_TABLES_RUN = re.compile(r"new_(\d{1,9})")


@dataclass(frozen=True)
class AutomaticSnapshot:
    """A snapshot that the pipeline takes or continues by itself."""

    run_id: str
    request: SnapshotRequest

    @property
    def identity(self) -> str:
        """The identity of its progress."""
        return snapshot_identity(self.request.pipeline, self.run_id)

    @property
    def purpose(self) -> str:
        """What it publishes, and the setting that says so, for messages."""
        if self.run_id == FIRST_RUN:
            return "its first snapshot publishes the existing rows, as `start: snapshot` says"
        return "a snapshot publishes the existing rows of new tables, as `snapshot: {new_tables: true}` says"


def takes_snapshots(pipeline: Pipeline) -> bool:
    """Whether the pipeline takes snapshots by itself."""
    return pipeline.start == "snapshot" or pipeline.snapshot.new_tables


def describe_automatic(pipeline: Pipeline) -> str:
    """Which snapshots the pipeline takes by itself, for `check`."""
    of_all = ["of all tables, once"] if pipeline.start == "snapshot" else []
    return "; ".join([*of_all, *(["of new tables"] if pipeline.snapshot.new_tables else [])])


def automatic_run_id(pipeline: str, identity: str) -> str | None:
    """The run id of the automatic snapshot ``identity`` of ``pipeline``; None for another identity."""
    run = identity.removeprefix(snapshot_identity(pipeline, ""))
    is_automatic = run != identity and (run == FIRST_RUN or _NEW_TABLES_RUN.fullmatch(run))
    return run if is_automatic else None


def due_snapshot(connections: PipelineConnections) -> AutomaticSnapshot | None:
    """The snapshot that the pipeline must take or continue by itself now; None if there is none.

    Raises BrokerUnavailableError and TopicError, and with `new_tables` what `Session` raises.
    """
    pipeline = connections.pipeline
    if not takes_snapshots(pipeline):
        return None
    begun = pipeline_snapshots(connections)
    if pipeline.start == "snapshot" and is_due(begun, snapshot_identity(pipeline.name, FIRST_RUN)):
        return AutomaticSnapshot(FIRST_RUN, SnapshotRequest.of({"pipeline": pipeline.name}))
    return _of_new_tables(connections, begun) if pipeline.snapshot.new_tables else None


def is_due(begun: Mapping[str, SnapshotRecord], first: str) -> bool:
    """Whether the snapshot ``first`` must be taken or continued; ``begun`` are all snapshots of the pipeline.

    Another snapshot of all rows of all tables replaces it: one that was taken before an upgrade or by another Airflow,
    and a finished one, for example after settings were changed while the first was under way.
    """
    complete = [record for identity, record in begun.items() if identity != first and _is_of_all_rows(record)]
    if first in begun:
        return not begun[first].finished and not any(record.finished for record in complete)
    return not complete


def _is_of_all_rows(record: SnapshotRecord) -> bool:
    return not record.request.get("tables") and not record.request.get("where")


def _of_new_tables(connections: PipelineConnections, begun: Mapping[str, SnapshotRecord]) -> AutomaticSnapshot | None:
    """The snapshot of tables that are not complete, according to the last sealed window and the patterns now."""
    pipeline, state = connections.pipeline, last_stable_state(connections)
    record, history = complete_tables(state), load_history(connections, state)
    sealed = state.seals[max(state.seals)].window if state.seals else None
    if record is None or history is None or sealed is None:
        return None
    # The history of a window is stored before its seal, and the record is of the last seal.
    if sealed.server_uuid != history.server_uuid or not history.since <= sealed.head <= history.until:
        return None
    parked = parked_tables(state).keys()
    missing = incomplete_tables(pipeline, record, history, sealed.head, begun.values()) - parked
    if not missing:
        return None
    with connections.session() as session:
        missing &= captured_names(pipeline, session, sequences=False)
    return next_of_new_tables(pipeline, missing, begun, parked)


def next_of_new_tables(
    pipeline: Pipeline, missing: Collection[str], begun: Mapping[str, SnapshotRecord], parked: Collection[str] = ()
) -> AutomaticSnapshot | None:
    """The unfinished snapshot of ``missing`` tables among ``begun``, or a new one; None if no table is missing.

    An unfinished one with a table that is ``parked`` now could not be continued: the next one has its other tables.
    """
    last, rules = 0, message_rules(pipeline)
    tables = [_pattern_of(name) for name in sorted(missing)[:MOST]]
    for identity, record in begun.items():
        run = automatic_run_id(pipeline.name, identity)
        if run is None or run == FIRST_RUN:
            continue
        last = max(last, int(run.removeprefix("new_")))
        is_same = all(rules.get(name) == digest for name, digest in record.rules.items())
        if record.finished and not record.tables and record.request.get("tables") == tables:
            return None  # the source has no such tables in the form in which a snapshot finds them
        names = {table.name for table in record.tables}
        if not record.finished and is_same and not names.isdisjoint(missing) and names.isdisjoint(parked):
            return AutomaticSnapshot(run, SnapshotRequest.of({**record.request, "pipeline": pipeline.name}))
    if not missing:
        return None
    return AutomaticSnapshot(f"new_{last + 1}", SnapshotRequest.of({"pipeline": pipeline.name, "tables": tables}))


def _pattern_of(name: str) -> str:
    """A pattern that matches only the table ``name``."""
    return name if re.fullmatch(r"[\w$. -]+", name) else f"/{re.escape(name)}/"
