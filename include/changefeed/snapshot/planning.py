"""Plans a snapshot from a request: selects its tables, and checks whether the snapshot is possible."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from changefeed.errors import SettingsError, SourceError, StaleCheckpointError
from changefeed.kafka.commit_log.records import BegunRecord
from changefeed.kafka.commit_log.snapshots import SnapshotRecord, TableProgress
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.table_pattern import matches
from changefeed.model.table_schema import Column, TableSchema
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.parking import check_none_parked
from changefeed.pipeline.plan import plan
from changefeed.pipeline.rights import check_rights, known_tables
from changefeed.pipeline.topics import table_topics
from changefeed.pipeline.windows import commit_log_states
from changefeed.settings.message_rules import message_rules
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.settings.routes import compile_routes
from changefeed.snapshot.hidden_bounds import check_bounds
from changefeed.source.mysql.catalog import table_schemas
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_key import TableKey

_ROWS = """
SELECT table_schema, table_name, COALESCE(table_rows, 0), COALESCE(avg_row_length, 0), t.engine, e.transactions
FROM information_schema.tables AS t LEFT JOIN information_schema.engines AS e ON e.engine = t.engine
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
"""


@dataclass(frozen=True)
class SnapshotPlan:
    """The plan of the snapshot ``identity``, which begins or continues at ``progress``.

    ``checkpoint`` is the pipeline's checkpoint at the time of the plan: everything before it is published.
    """

    identity: str
    request: SnapshotRequest
    checkpoint: Checkpoint
    progress: SnapshotRecord
    topics: Mapping[str, str]

    @property
    def tables(self) -> tuple[TableProgress, ...]:
        """The tables of the snapshot."""
        return self.progress.tables

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values for an XCom; `from_json` reads them."""
        return {
            "identity": self.identity,
            "request": self.request.model_dump(mode="json"),
            "checkpoint": self.checkpoint.to_text(),
            "tables": [replace(table, at=None).to_json() for table in self.tables],  # an XCom has no keys of rows
            "rules": dict(self.progress.rules),
            "began_ms": self.progress.began_ms,
            "topics": dict(self.topics),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SnapshotPlan:
        """The plan from values of `to_json`, without progress. The commit log has the progress."""
        request = SnapshotRequest.of(dict(values["request"]))
        tables = tuple(map(_without_progress, map(TableProgress.from_json, values["tables"])))
        progress = _new_record(values["request"], values["rules"], tables, int(values["began_ms"]))
        checkpoint = Checkpoint.from_text(values["checkpoint"])
        return cls(values["identity"], request, checkpoint, progress, values["topics"])


def plan_snapshot(
    connections: PipelineConnections,
    store: CheckpointStore,
    request: SnapshotRequest,
    identity: str,
    *,
    dry_run: bool = False,
    may_be_empty: bool = False,
) -> SnapshotPlan:
    """Return the plan of a new snapshot of ``request``, or of the earlier snapshot ``identity`` with its progress.

    A pipeline that never ran gets its first checkpoint, at its `start`, so that its windows publish the changes from
    there on. With ``dry_run`` no checkpoint is stored. A plan that ``may_be_empty`` has no table if none matches.

    Raises:
    - SettingsError for tables that the pipeline does not capture, or that are parked, and for settings that snapshots
      do not support.
    - SourceError if the server logs partial rows, or if its user may not read a table.
    - The errors of `pipeline.plan.plan`.
    """
    pipeline = connections.pipeline
    check_takes_snapshots(pipeline)
    with ThreadPoolExecutor(1, "changefeed-plan") as beside:
        logged = beside.submit(commit_log_states, connections, identity)
        checkpoint = _checkpoint(connections, store, keep_first=not dry_run)
    with connections.session() as session:
        check_row_images(session)
        check_rights(connections, session, known_tables(connections), request.tables)
        topics = table_topics(pipeline, session, sequences=False)
        of_windows, own = logged.result()
        begun = own.of(SnapshotRecord)
        progress = begun[0] if begun else _plan_tables(pipeline, session, request, topics, may_be_empty)
        names_read = {table.name for table in progress.tables}
        check_none_parked(pipeline.name, of_windows, f"snapshot {identity!r}", names_read)
        if pipeline.hides_columns:
            names = ((table.database, table.table) for table in progress.tables)
            check_bounds(connections, table_schemas(session, names).values())
        if asked := request.asked:
            names = ((table.database, table.table) for table in progress.tables)
            for schema in table_schemas(session, names).values():
                check_condition_columns(connections, schema, asked)
    named = {table.name: topics.get((table.database, table.table)) for table in progress.tables}
    there = {name: topic for name, topic in named.items() if topic is not None}
    return SnapshotPlan(identity, request, checkpoint, progress, there)


def _without_progress(table: TableProgress) -> TableProgress:
    return TableProgress(table.database, table.table, table.key, table.estimated_rows, row_bytes=table.row_bytes)


def _checkpoint(connections: PipelineConnections, store: CheckpointStore, *, keep_first: bool) -> Checkpoint:
    try:
        return plan(connections, store, keep_first_checkpoint=keep_first).expected
    except StaleCheckpointError:  # a run began or ended meanwhile
        return plan(connections, store, keep_first_checkpoint=keep_first).expected


def check_takes_snapshots(pipeline: Pipeline) -> None:
    """Raises SettingsError for settings that snapshots do not support."""
    if pipeline.reader == "reference":
        raise SettingsError(
            f"pipeline {pipeline.name!r} has `reader: reference`, which cannot read rows of tables: use the kernel"
        )
    by_option = {op for choice in compile_routes(pipeline).formats for op in choice.row_rules.skipped}
    for skipped, setting in ((pipeline.skip, "skip"), (by_option, "skipped.operations")):
        if left_out := [op for op in ("r", "c", "u") if op in skipped]:
            raise SettingsError(
                f"pipeline {pipeline.name!r} has {left_out[0]!r} in `{setting}`: a snapshot publishes op r, and leaves "
                "out rows that change while it reads, as windows publish those with op c or u. Remove these ops from "
                f"`{setting}`"
            )


def _plan_tables(
    pipeline: Pipeline,
    session: Session,
    request: SnapshotRequest,
    names: Collection[tuple[str, str]],
    may_be_empty: bool,
) -> SnapshotRecord:
    stored = {(str(database), str(table)): values for database, table, *values in session.rows(_ROWS)}
    tables = []
    for (database, table), schema in table_schemas(session, (name for name in names if request.matches(*name))).items():
        rows, row_bytes, engine, transactions = stored.get((database, table), (0, 0, None, None))
        if not schema.primary_key and engine is not None and transactions != "YES":
            raise _no_view_error(f"{database}.{table}", str(engine))
        tables.append(TableProgress(database, table, key_text(schema), int(rows), row_bytes=int(row_bytes)))
    if not tables and not may_be_empty:
        captured = sorted(f"{database}.{table}" for database, table in names)
        raise SettingsError(
            f"no table that pipeline {pipeline.name!r} captures matches {', '.join(request.tables) or '*.*'}: it "
            f"captures {', '.join(captured) or 'none'}"
        )
    return _new_record(request.model_dump(mode="json"), message_rules(pipeline), tuple(tables), int(time.time() * 1000))


def _no_view_error(table: str, engine: str) -> SettingsError:
    return SettingsError(
        f"table {table} has no primary key, and its engine {engine} has no consistent reads: a row that is written "
        "while the table is read could be published twice. Nothing was published. Give it a primary key, or ALTER "
        "TABLE … ENGINE = InnoDB; or name the other tables in `tables` of the snapshot."
    )


def _new_record(
    request: Mapping[str, Any], rules: Mapping[str, str], tables: tuple[TableProgress, ...], began_ms: int
) -> SnapshotRecord:
    """The record of a new snapshot. Chunk numbers start at ``began_ms``, so event ids differ between snapshots."""
    return SnapshotRecord(request, rules, tables, began_ms, number=began_ms)


def key_text(schema: TableSchema) -> str:
    """A text with everything that defines the order of the table's primary key; '' without a key."""
    TableKey.of(schema)
    return ", ".join(_ordered_by(schema.columns[number]) for number in schema.primary_key)


def _ordered_by(column: Column) -> str:
    """The name and type of a key's column, with all attributes that change how its values are written or compared."""
    sizes = [column.length, column.precision, column.scale, column.datetime_precision]
    arguments = [repr(label) for label in column.labels] or [str(size) for size in sizes if size is not None]
    type = f"{column.data_type}({', '.join(arguments)})" if arguments else column.data_type
    words = (column.name, type, "unsigned" if column.unsigned else "", column.collation or "")
    return " ".join(word for word in words if word)


def check_row_images(session: Session) -> None:
    """Raises SourceError if the server logs partial rows."""
    image = session.variable("binlog_row_image")
    if image not in (None, "FULL"):
        raise SourceError(
            f"{session.connection}: expected binlog_row_image FULL, found {image!r}: a snapshot leaves out rows that "
            "change while it reads, so windows have to publish those completely. SET GLOBAL binlog_row_image = 'FULL' "
            "(open sessions keep theirs until they reconnect)."
        )


def check_begun(begun: Iterable[BegunRecord], rules: Mapping[str, str]) -> None:
    """Raises SettingsError if a window is published in part with other settings, because they must not change in it."""
    for record in begun:
        if changed := _changed_rules(record.rules, rules):
            raise SettingsError(
                f"window {record.window.number} of pipeline {record.window.pipeline!r} was published in part with "
                f"other settings ({changed} changed). Nothing was published. Run the pipeline first: it finishes the "
                "window, or says what to do."
            )


def check_rules(begun: SnapshotRecord, rules: Mapping[str, str], identity: str, pipeline: str) -> None:
    """Raises SettingsError if the snapshot began with other settings, because they must not change within it."""
    if changed := _changed_rules(begun.rules, rules):
        raise SettingsError(
            f"snapshot {identity!r} was begun with other settings: {changed} of pipeline {pipeline!r} changed since. "
            "Its published rows are written with the old ones. Nothing more was published. Restore the settings, or "
            "start a new snapshot."
        )


def _changed_rules(begun: Mapping[str, str], rules: Mapping[str, str]) -> str:
    """The names of the settings that changed, for a message; '' if none changed."""
    return ", ".join(f"`{rule}`" for rule in sorted(begun) if rules.get(rule) != begun[rule])


def check_condition_columns(connections: PipelineConnections, schema: TableSchema, asked: Collection[str]) -> None:
    """Raises SettingsError if the pipeline does not capture the table, or if a condition may not use its columns.

    ``asked`` are the columns of the condition. They must exist and must not be hidden.

    A function of `transforms` may hide any column. So a condition on its tables may use only columns of the key that
    the function's arguments do not name. Tasks that read rows call this again, because the XCom with the plan may have
    been edited, and the settings may have changed.
    """
    name = f"{schema.database}.{schema.table}"
    if not connections.pipeline.tables.matches(schema.database, schema.table):
        raise SettingsError(
            f"snapshot: pipeline {connections.pipeline.name!r} does not capture {name}: the plan was edited, or "
            "`tables` changed since. Nothing of it was read. Start a new snapshot"
        )
    transformed = any(matches(each.tables, schema.database, schema.table) for each in connections.pipeline.transforms)

    def is_hidden(position: int) -> bool:
        column = schema.columns[position]
        if position not in schema.primary_key and (transformed or column.hidden):
            return True
        return connections.pipeline.hides(schema.database, schema.table, column.name)

    positions = {column.name.lower(): number for number, column in enumerate(schema.columns)}
    for column in asked:
        position = positions.get(column.lower())
        if position is None:
            raise SettingsError(
                f"snapshot: where: {name} has no column {column!r}; it has "
                f"{', '.join(column.name for column in schema.columns)}"
            )
        if is_hidden(position):
            raise SettingsError(
                f"snapshot: where: column {column!r} of {name} is left out or masked by the pipeline, or may be by its "
                "`transforms`, and a condition would reveal its values. Nothing was published. Use a column that is "
                "published as it is, or the table's key"
            )
