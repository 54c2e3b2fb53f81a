"""Find the keys that changed in a range of the binlog, and the tables with DDL.

A snapshot does not publish the rows of these keys that it has read: windows publish their changes, with complete rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.binlog.programs.program import WrittenRows
from changefeed.ddl.changes import AlterDatabase, CreateDatabase, DropDatabase
from changefeed.ddl.ddl_statement import Kind
from changefeed.ddl.history import SchemaHistory, read_logged
from changefeed.errors import PipelineBusyError
from changefeed.formats.notation import JSON, ColumnText, JsonNotation, Notation
from changefeed.formats.style import DEFAULT_STYLE, Style
from changefeed.formats.template import DELETE_AND_CREATE, Messages, Op, Slot, Template
from changefeed.kafka.window_topics import WindowTopics
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.window import Window, file_slices
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.schema_history import history_for
from changefeed.pipeline.unknown_tables import apply_answers
from changefeed.pipeline.windows import commit_log_state
from changefeed.records.block import NULL_KEY, MessageBlock
from changefeed.records.compression import CODECS
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import window_files
from changefeed.source.mysql.server_ids import ServerIds
from changefeed.source.mysql.server_schemas import collation_names
from changefeed.source.mysql.session import Session, server_of
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.dump import open_dump
from changefeed.spark.stages.earlier_slices import EarlierSlices
from changefeed.spark.stages.schema_follower import SchemaFollower
from changefeed.spark.stages.transaction_outcomes import TransactionOutcomes, resolve_transactions

_LZ4 = CODECS["lz4"]
_DDL_KINDS = (Kind.DDL, Kind.TRUNCATE, Kind.ROWS, Kind.UNREADABLE)
"""Kinds of statements that may change rows or columns of a table without row events."""


@dataclass(frozen=True)
class _CompleteRow(JsonNotation):
    def column(self, column: Column) -> ColumnText:
        return replace(super().column(column), missing=None)


@dataclass(frozen=True)
class _KeyNotation(JsonNotation):
    def of(self, slot: Slot) -> Notation:
        return _COMPLETE_ROW if slot is Slot.AFTER else JSON


_COMPLETE_ROW = _CompleteRow()


@dataclass(frozen=True)
class KeyFormat:
    """A format whose messages are read only for their key: the primary key of the row, whatever the pipeline's `keys`.

    A change of the key gives a message for the old and one for the new key. The bytes of two keys are equal if and only
    if the server stores equal values. A change without all columns (binlog_row_image is not FULL) raises an error: its
    window would not publish the complete row, which the snapshot omits.
    """

    style: Style = DEFAULT_STYLE
    notation: Notation = _KeyNotation()
    needs_definitions: bool = False

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        """A change of the key has two messages: a delete of the old key, and a create of the new one."""
        return DELETE_AND_CREATE

    def key(self, table: TableSchema) -> Template | None:
        """The primary key's columns as a JSON object; None for a table without a primary key."""
        return (Slot.KEY,) if table.primary_key else None

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002 - the same for each table
        """The row after a change; it is built only to raise an error if columns are missing."""
        return (Slot.AFTER,) if op in ("c", "u") else (b"-",)


KEYS = KeyFormat()

MOST_KEYS = 1_000_000
"""The default limit of keys in memory: about 150 bytes each, in the driver and in each publishing task."""
_BYTES_A_KEY = 300
"""Bytes per key of the limit for a file's compressed messages, which are held until the outcome of the file's
transactions is known."""


KEYS_OF = "keys of "
"""The prefix of the names of key routes. It has a space, so no topic has such a name."""


def key_route(database: str, table: str) -> Route:
    """The route of a table's keys: one partition of a name that is not a topic."""
    return Route(f"{KEYS_OF}{database}.{table}", 1)


@dataclass(frozen=True, kw_only=True)
class _KeyTask(DecodeTask):
    """Reads the keys of those changes in a range of the binlog that windows publish, for the tables of ``schemas``.

    It ignores changes that the pipeline's settings skip, and all changes of outbox tables but inserts. Columns are
    neither masked nor excluded.
    """

    schemas: Mapping[tuple[str, str], TableSchema] = field(default_factory=dict)

    def route(self, database: str, table: str) -> Route | None:
        if (database, table) not in self.schemas:
            return None
        route, outbox = key_route(database, table), self.pipeline.outbox
        if outbox is not None and outbox.matches(database, table):
            return replace(route, skipped=frozenset({"u", "d"}))
        published = self.connections.routes.of(database, table)
        if published is None:
            return route
        own = published.route
        return replace(
            route, rows=own.rows, skipped=own.skipped, unchanged_skipped=own.unchanged_skipped, setting=own.setting
        )

    @property
    def column_rules(self) -> ColumnRules:
        return ALL_SHOWN

    @property
    def compared_as(self) -> WrittenRows:
        return self.connections.routes.format(0), self.connections.column_rules

    def format(self) -> KeyFormat:  # type: ignore[override] # a row format: statements have no messages
        return KEYS

    @property
    def server_ids(self) -> ServerIds:
        return ServerIds(self.identity)


@dataclass(frozen=True)
class _TableDdl:
    """A DDL statement that begins at ``at``.

    If ``replaces_rows``, the statement may replace rows without row events, so a snapshot must not publish rows that it
    read before the statement.
    """

    at: BinlogCoordinates
    replaces_rows: bool


@dataclass(frozen=True)
class _ChangedRange:
    """The changes between two commit boundaries.

    - ``keys``: "database.table" -> its changed keys
    - ``ddl``: a name -> DDL statements, in binlog order. The name "database.table" is for statements on this table,
      "database." for statements on all tables of a database, "" for statements on any table, and "database" for
      CREATE DATABASE.
    - ``gtids``: all transactions of the range
    """

    start: BinlogCoordinates
    end: BinlogCoordinates
    keys: Mapping[str, set[bytes]]
    ddl: Mapping[str, list[_TableDdl]]
    gtids: GtidSet


class TooManyChangedKeysError(PipelineBusyError):
    """The pipeline has too many unpublished changes, so the snapshot must wait for its windows."""


class ChangedKeys:
    """The keys of the tables of ``schemas`` that changed between ``start`` and ``end``.

    `read_to` moves ``end`` forward, `forget` moves ``start``. The binlog is read in this process, one file at a time.
    Changes that were rolled back are ignored. At most ``most_keys`` keys are held in memory.
    """

    def __init__(
        self,
        connections: PipelineConnections,
        server_uuid: str,
        start: BinlogCoordinates,
        schemas: Mapping[tuple[str, str], TableSchema],
        most_keys: int = MOST_KEYS,
    ) -> None:
        self._connections, self.server_uuid, self.schemas = connections, server_uuid, schemas
        self._ranges: list[_ChangedRange] = []
        self.start = self.end = start
        self._most_keys = most_keys
        self._before = start
        self._refusal: TooManyChangedKeysError | None = None
        self._history: SchemaHistory | None = None
        """The schema history for row events without column names; settings for unknown tables are applied to it."""

    def forget(self, before: BinlogCoordinates) -> None:
        """Remove the ranges up to ``before``, which the pipeline has published by now."""
        if before != self._before:
            self._before, self._refusal = before, None
        self._ranges = [each for each in self._ranges if before < each.end]
        if not self._ranges:
            self.start = self.end = before
        else:
            self.start = self._ranges[0].start

    def read_to(self, end: BinlogCoordinates) -> None:
        """Read the changes up to ``end``, a commit boundary.

        Raises TooManyChangedKeysError if there are more keys than ``most_keys``; later calls raise it without reading,
        until `forget` is called with a later position. Also raises the errors of reading a window.
        """
        if self.end >= end:
            return
        if self._refusal is not None:
            raise self._refusal
        try:
            for changed in self._read(self.end, end):
                self._ranges.append(changed)
                self.end = changed.end
        except TooManyChangedKeysError as error:
            self._refusal = error
            raise
        self.end = end

    def keys(self, table: str) -> set[bytes]:
        """The changed keys of "database.table"."""
        return set().union(*(changed.keys.get(table, set()) for changed in self._ranges))

    @property
    def tables(self) -> set[str]:
        """The tables with changed keys, as "database.table"."""
        return {table for changed in self._ranges for table, keys in changed.keys.items() if keys}

    @property
    def gtids(self) -> GtidSet:
        """A GTID set with all transactions that changed the keys; it may have others too."""
        return GtidSet().union(*(changed.gtids for changed in self._ranges if any(changed.keys.values())))

    @property
    def redefined_tables(self) -> set[str]:
        """The tables with DDL, as "database.table"."""
        return {name for changed in self._ranges for name in changed.ddl if not name.endswith(".")} - {""}

    def last_ddl(self, table: str) -> BinlogCoordinates | None:
        """The start of the last DDL statement on "database.table", or on "database"; None if there is none."""
        return max((each.at for each in self._ddl_of(table)), default=None)

    def last_replacement(self, table: str) -> BinlogCoordinates | None:
        """The start of the last statement that may have replaced rows of "database.table" without row events, such as
        a rename of another table to this name; None if there is none."""
        return max((each.at for each in self._ddl_of(table) if each.replaces_rows), default=None)

    def _ddl_of(self, table: str) -> Iterator[_TableDdl]:
        for changed in self._ranges:
            for name, statements in changed.ddl.items():
                if name in (table, "") or (name.endswith(".") and f"{table}.".startswith(name)):
                    yield from statements

    def _read(self, start: BinlogCoordinates, end: BinlogCoordinates) -> Iterator[_ChangedRange]:
        connections, schemas = self._connections, self.schemas
        window = Window(connections.pipeline.name, 0, self.server_uuid, start, end, "", "", 0)
        with connections.session_on(self.server_uuid) as session:
            slices = tuple(file_slices(window, source.binlog_files(session)))
            files = window_files(connections.mysql, window, (binlog_slice.file for binlog_slice in slices))
            task = _KeyTask(
                connections=connections,
                server_uuid=self.server_uuid,
                start=start,
                topics=WindowTopics(connections.kafka, {}, create=False),
                identity=f"{connections.pipeline.name}.keys",
                frozen_at_ms=0,
                files=files,
                slices=slices,
                schemas=schemas,
            )
            history = self._history_from(session, window) if schemas else None
            decoder = KernelDecoder(
                task.route, lambda *table: schemas.get(table), KEYS, self.server_uuid, compared_as=task.compared_as
            )
            for binlog_slice in slices:
                if history is not None:
                    follower = SchemaFollower(history, binlog_slice)
                    decoder.programs.schema_lookup, decoder.on_statement = follower.lookup, follower.follow
                lookup = decoder.programs.schema_lookup
                decoder.prepared_rows = PreparedRows(EarlierSlices(task, binlog_slice, lookup, None))
                blocks: list[MessageBlock] = []
                reports: list[SliceReport] = []
                held_bytes = 0
                for item in decoder.decode(open_dump(task, binlog_slice), binlog_slice):
                    if isinstance(item, MessageBlock):
                        blocks.append(replace(item, payload=_LZ4.compress(item.payload, None)))
                        held_bytes += len(blocks[-1].payload)
                        self._check_limit(held_bytes <= _BYTES_A_KEY * self._most_keys, end)
                    else:
                        reports.append(item)
                begin, slice_end = (
                    BinlogCoordinates(binlog_slice.file, position)
                    for position in (binlog_slice.start, binlog_slice.end)
                )
                keys = self._resolved_keys(blocks, resolve_transactions((binlog_slice,), reports), slice_end)
                statements = [each for report in reports for each in report.statements]
                for statement in statements:
                    history = history and history.advance(statement)
                self._history = history and history.extend_to(slice_end)
                ddl = _ddl_by_name(session, statements)
                gtids = GtidSet().union(*(GtidSet.parse(report.gtids) for report in reports))
                yield _ChangedRange(begin, slice_end, keys, ddl, gtids)

    def _history_from(self, session: Session, window: Window) -> SchemaHistory | None:
        """The schema history with which to read ``window``; None if its row events have the names of columns."""
        if self._history is None or not self._history.covers(window.server_uuid, window.start):
            history = history_for(self._connections, session, window, commit_log_state(self._connections))
            pipeline = self._connections.pipeline
            self._history = apply_answers(pipeline, history) if history and history.tables_known else None
        return self._history

    def _resolved_keys(
        self, blocks: Iterable[MessageBlock], transaction_outcomes: TransactionOutcomes, end: BinlogCoordinates
    ) -> dict[str, set[bytes]]:
        """Table -> its keys in the compressed ``blocks``, without changes that were rolled back or only prepared."""
        excluded = (*transaction_outcomes.rolled_back, *transaction_outcomes.prepared)
        held = sum(len(keys) for changed in self._ranges for keys in changed.keys.values())
        keys: dict[str, set[bytes]] = {}
        for block in blocks:
            of_block = block_keys(replace(block, payload=_LZ4.decompress(block.payload)))
            if excluded:
                of_block = (each for each in of_block if not any(of.holds(block.origin, each[0]) for of in excluded))
            keys.setdefault(block.topic.removeprefix(KEYS_OF), set()).update(key for _, key in of_block)
            self._check_limit(held + sum(map(len, keys.values())) <= self._most_keys, end)
        return keys

    def _check_limit(self, is_within: bool, end: BinlogCoordinates) -> None:
        if not is_within:
            name = self._connections.pipeline.name
            raise TooManyChangedKeysError(
                f"expected at most {self._most_keys:,} changed keys in the tables of the snapshot, found more between "
                f"{self.start} and {end}. Pipeline {name!r} has not published these changes: the snapshot waits. Run "
                "the pipeline during the snapshot, or allow more keys in memory (changed_keys), at 150 bytes each."
            )


def block_keys(block: MessageBlock) -> Iterator[tuple[int, bytes]]:
    """Yield the position and key of each message that has a key."""
    arrays = block.arrays()
    begin = 0
    for number, position in enumerate(arrays.positions):
        if not arrays.nulls[number] & NULL_KEY:
            yield position, bytes(arrays.data[begin : arrays.ends[4 * number]])
        begin = arrays.ends[4 * number + 3]


def _ddl_by_name(session: Session, statements: Sequence[Statement]) -> dict[str, list[_TableDdl]]:
    if not statements:
        return {}
    server, collations = server_of(session), collation_names(session)
    by_name: dict[str, list[_TableDdl]] = {}
    for statement in statements:
        read = read_logged(statement, server, collations)
        change = read.change
        is_create = isinstance(change, CreateDatabase) and not change.replace
        if read.kind in _DDL_KINDS and not isinstance(change, AlterDatabase):
            names = [f"{name.database}.{name.table}" for name in read.tables]
            if isinstance(change, DropDatabase | CreateDatabase):
                names = [change.name if is_create else f"{change.name}."]
            at = BinlogCoordinates(statement.file, statement.position)
            ddl = _TableDdl(at, read.replaces_rows)
            for name in names or [""]:
                by_name.setdefault(name, []).append(ddl)
    return by_name
