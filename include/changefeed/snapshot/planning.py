"""From a request to a snapshot that can begin: what it will read, and why it cannot where it cannot."""

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
from changefeed.pipeline.plan import plan
from changefeed.pipeline.rights import check_rights, known_tables
from changefeed.pipeline.topics import table_topics
from changefeed.pipeline.windows import commit_log_state
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
    """A snapshot that is to be published under ``identity``, from where it ``stands``.

    ``checkpoint`` is the pipeline's at that time: what was published before it is known, and more later.
    """

    identity: str
    request: SnapshotRequest
    checkpoint: Checkpoint
    stands: SnapshotRecord
    topics: Mapping[str, str]

    @property
    def tables(self) -> tuple[TableProgress, ...]:
        """Its tables."""
        return self.stands.tables

    def to_json(self) -> dict[str, Any]:
        """Plain values, as a task hands them on; `from_json` reads them."""
        return {
            "identity": self.identity,
            "request": self.request.model_dump(mode="json"),
            "checkpoint": self.checkpoint.to_text(),
            "tables": [replace(table, at=None).to_json() for table in self.tables],  # a task's XCom has no row's key
            "rules": dict(self.stands.rules),
            "began_ms": self.stands.began_ms,
            "topics": dict(self.topics),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SnapshotPlan:
        """The plan as it was handed on; how far it has come since, the commit log says."""
        request = SnapshotRequest.of(dict(values["request"]))
        tables = tuple(map(_unread, map(TableProgress.from_json, values["tables"])))
        stands = _begun(values["request"], values["rules"], tables, int(values["began_ms"]))
        checkpoint = Checkpoint.from_text(values["checkpoint"])
        return cls(values["identity"], request, checkpoint, stands, values["topics"])


def plan_snapshot(
    connections: PipelineConnections,
    store: CheckpointStore,
    request: SnapshotRequest,
    identity: str,
    *,
    only_look: bool = False,
) -> SnapshotPlan:
    """Find the tables of ``request``, or how far a snapshot has come that was begun as ``identity``.

    A pipeline that never ran gets its first checkpoint, at its `start`: its windows publish what changes from there on.
    Not where somebody wants ``only_look``.

    Raises SettingsError for tables that the pipeline does not capture and for settings under which a snapshot cannot
    be right; SourceError for a server that logs parts of rows, and for tables that its user may not read; and as
    `pipeline.plan.plan`.
    """
    pipeline = connections.pipeline
    check_takes_snapshots(pipeline)
    with ThreadPoolExecutor(1, "changefeed-plan") as beside:
        logged = beside.submit(commit_log_state, connections, identity)
        checkpoint = _checkpoint(connections, store, keep_first=not only_look)
    with connections.session() as session:
        check_row_images(session)
        check_rights(connections, session, known_tables(connections), request.tables)
        topics = table_topics(pipeline, session, sequences=False)
        begun = logged.result().of(SnapshotRecord)
        stands = begun[0] if begun else _new(pipeline, session, request, topics)
        if pipeline.hides_columns:
            names = ((table.database, table.table) for table in stands.tables)
            check_bounds(connections, table_schemas(session, names).values())
        if asked := request.asked:
            names = ((table.database, table.table) for table in stands.tables)
            for schema in table_schemas(session, names).values():
                check_asked(connections, schema, asked)
    named = {table.name: topics.get((table.database, table.table)) for table in stands.tables}
    there = {name: topic for name, topic in named.items() if topic is not None}
    return SnapshotPlan(identity, request, checkpoint, stands, there)


def _unread(table: TableProgress) -> TableProgress:
    return TableProgress(table.database, table.table, table.key, table.estimated_rows, row_bytes=table.row_bytes)


def _checkpoint(connections: PipelineConnections, store: CheckpointStore, *, keep_first: bool) -> Checkpoint:
    try:
        return plan(connections, store, keep_first_checkpoint=keep_first).expected
    except StaleCheckpointError:  # a run began or ended in this moment
        return plan(connections, store, keep_first_checkpoint=keep_first).expected


def check_takes_snapshots(pipeline: Pipeline) -> None:
    """Raises SettingsError for settings under which rows that are read cannot stand beside the windows' changes."""
    if pipeline.reader == "reference":
        raise SettingsError(
            f"pipeline {pipeline.name!r} has `reader: reference`, which reads no rows of tables: take the kernel"
        )
    by_option = {op for choice in compile_routes(pipeline).formats for op in choice.row_rules.skipped}
    for skipped, setting in ((pipeline.skip, "skip"), (by_option, "skipped.operations")):
        if left_out := [op for op in ("r", "c", "u") if op in skipped]:
            raise SettingsError(
                f"pipeline {pipeline.name!r} has {left_out[0]!r} in `{setting}`: a snapshot publishes op r, and leaves "
                "out rows that change while it reads, as windows publish those by op c or u. Take these ops out of "
                f"`{setting}`"
            )


def _new(
    pipeline: Pipeline, session: Session, request: SnapshotRequest, names: Collection[tuple[str, str]]
) -> SnapshotRecord:
    stored = {(str(database), str(table)): values for database, table, *values in session.rows(_ROWS)}
    tables = []
    for (database, table), schema in table_schemas(session, (name for name in names if request.takes(*name))).items():
        rows, row_bytes, engine, transactions = stored.get((database, table), (0, 0, None, None))
        if not schema.primary_key and engine is not None and transactions != "YES":
            raise _without_view(f"{database}.{table}", str(engine))
        tables.append(TableProgress(database, table, key_text(schema), int(rows), row_bytes=int(row_bytes)))
    if not tables:
        captured = sorted(f"{database}.{table}" for database, table in names)
        raise SettingsError(
            f"no table that pipeline {pipeline.name!r} captures matches {', '.join(request.tables) or '*.*'}: it "
            f"captures {', '.join(captured) or 'none'}"
        )
    return _begun(request.model_dump(mode="json"), message_rules(pipeline), tuple(tables), int(time.time() * 1000))


def _without_view(table: str, engine: str) -> SettingsError:
    return SettingsError(
        f"table {table} has no primary key, and its engine {engine} shows no rows as they were at one moment: a row "
        "that is written while it is read would be published twice. Nothing was published. Give it a primary key, or "
        "ALTER TABLE … ENGINE = InnoDB; or name the other tables in `tables` of the snapshot."
    )


def _begun(
    request: Mapping[str, Any], rules: Mapping[str, str], tables: tuple[TableProgress, ...], began_ms: int
) -> SnapshotRecord:
    """Its chunks are numbered from the time on when it began: an event id names no row of another snapshot."""
    return SnapshotRecord(request, rules, tables, began_ms, number=began_ms)


def key_text(schema: TableSchema) -> str:
    """What decides how ranges of the table's key compare; '' without a key."""
    TableKey.of(schema)
    return ", ".join(_ordered_by(schema.columns[number]) for number in schema.primary_key)


def _ordered_by(column: Column) -> str:
    """Name and type of a key's column, with all that says how its values are written and compared."""
    sizes = [column.length, column.precision, column.scale, column.datetime_precision]
    arguments = [repr(label) for label in column.labels] or [str(size) for size in sizes if size is not None]
    type = f"{column.data_type}({', '.join(arguments)})" if arguments else column.data_type
    words = (column.name, type, "unsigned" if column.unsigned else "", column.collation or "")
    return " ".join(word for word in words if word)


def check_row_images(session: Session) -> None:
    """Raises SourceError for a server that logs parts of rows from now on."""
    image = session.variable("binlog_row_image")
    if image not in (None, "FULL"):
        raise SourceError(
            f"{session.connection}: binlog_row_image is {image!r}, and a snapshot wants FULL: it leaves out rows that "
            "change while it reads, as windows publish those, whole. SET GLOBAL binlog_row_image = 'FULL' (open "
            "sessions keep theirs until they reconnect)."
        )


def check_begun(begun: Iterable[BegunRecord], rules: Mapping[str, str]) -> None:
    """A window that is published in part is finished by the settings that it was begun with; raises SettingsError."""
    for record in begun:
        if changed := _changed(record.rules, rules):
            raise SettingsError(
                f"window {record.window.number} of pipeline {record.window.pipeline!r} was published in part by "
                f"other settings ({changed} changed): run the pipeline first, which finishes it or says what to do. "
                "Nothing was published."
            )


def check_rules(begun: SnapshotRecord, rules: Mapping[str, str], identity: str, pipeline: str) -> None:
    """A snapshot is finished by the settings that it was begun with; raises SettingsError."""
    if changed := _changed(begun.rules, rules):
        raise SettingsError(
            f"snapshot {identity!r} was begun with other settings: {changed} of pipeline {pipeline!r} changed since. "
            "Rows that it has published are written by the old ones. Nothing more was published. Put the settings "
            "back, or start a new snapshot."
        )


def _changed(begun: Mapping[str, str], rules: Mapping[str, str]) -> str:
    """The settings that are others now, for a message; '' where none is."""
    return ", ".join(f"`{rule}`" for rule in sorted(begun) if rules.get(rule) != begun[rule])


def check_asked(connections: PipelineConnections, schema: TableSchema, asked: Collection[str]) -> None:
    """Raises SettingsError for a table that the pipeline does not capture, and where a condition names columns,
    ``asked``, that are hidden or that the table does not have.

    What a function of `transforms` hides, it alone knows: of its tables only the key may be asked about, and that not
    where the function's arguments name it. Whoever reads rows calls this: between plan and reading stand an XCom, which
    others may edit, and time.
    """
    name = f"{schema.database}.{schema.table}"
    if not connections.pipeline.tables.matches(schema.database, schema.table):
        raise SettingsError(
            f"snapshot: {name} is not a table that pipeline {connections.pipeline.name!r} captures. Nothing of it was "
            "read. Start a new snapshot: its plan was edited, or `tables` changed since"
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
                "`transforms`, and a condition would tell what is in it. Nothing was published. Compare a column that "
                "is shown, or the table's key"
            )
