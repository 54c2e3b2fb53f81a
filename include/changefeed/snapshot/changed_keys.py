"""The keys that changed in a stretch of the binlog, and the tables that were defined anew: what of the rows that were
read meanwhile is not published."""

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
from changefeed.model.window import Window, whole_file_slices
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.schema_history import history_for
from changefeed.pipeline.unknown_tables import answered
from changefeed.pipeline.windows import commit_log_state
from changefeed.records.block import NULL_KEY, MessageBlock
from changefeed.records.compression import CODECS
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import window_files
from changefeed.source.mysql.server_ids import ServerIds
from changefeed.source.mysql.server_schemas import collation_names
from changefeed.source.mysql.session import Session, server_of
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.dump import dump_of
from changefeed.spark.stages.earlier_slices import EarlierSlices
from changefeed.spark.stages.schema_follower import SchemaFollower
from changefeed.spark.stages.settlement import Settlement, settle

_LZ4 = CODECS["lz4"]
_DEFINES = (Kind.DEFINITION, Kind.TRUNCATE, Kind.ROWS, Kind.UNREADABLE)
"""After such a statement a table may have other rows or columns, and no row event says so."""


@dataclass(frozen=True)
class _WholeRow(JsonNotation):
    def column(self, column: Column) -> ColumnText:
        return replace(super().column(column), missing=None)


@dataclass(frozen=True)
class _KeyNotation(JsonNotation):
    def of(self, slot: Slot) -> Notation:
        return _WHOLE_ROW if slot is Slot.AFTER else JSON


_WHOLE_ROW = _WholeRow()


@dataclass(frozen=True)
class KeyFormat:
    """Messages of which only the key counts, the primary key of a row, whatever the pipeline makes of the table.

    A change of key has both. Keys are the same bytes where the server stores the same values, and only there. A change
    without all columns, of a session whose binlog_row_image is not FULL, is refused: the window that publishes it
    would not make good the row that is left out for it.
    """

    style: Style = DEFAULT_STYLE
    notation: Notation = _KeyNotation()
    needs_definitions: bool = False

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        """A change of key is a delete and a create."""
        return DELETE_AND_CREATE

    def key(self, table: TableSchema) -> Template | None:
        """The primary key's columns as a JSON object; None for a table without a primary key."""
        return (Slot.KEY,) if table.primary_key else None

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002 - the same for each table
        """The row that a change leaves, to be refused where it is none; nobody reads it."""
        return (Slot.AFTER,) if op in ("c", "u") else (b"-",)


KEYS = KeyFormat()

MOST_KEYS = 1_000_000
"""So many are held: some 150 bytes each, in the driver and in each task that publishes."""
_BYTES_A_KEY = 300
"""As much, compressed, is held of a file's changes until its end says which of them are void."""


KEYS_OF = "keys of "
"""What the route of a table's keys is named, before the table's name. No topic has a space in its name."""


def key_route(database: str, table: str) -> Route:
    """The route of a table's keys: a partition of its own, in no topic."""
    return Route(f"{KEYS_OF}{database}.{table}", 1)


@dataclass(frozen=True, kw_only=True)
class _KeyTask(DecodeTask):
    """Reads a stretch of the binlog for the keys of ``schemas``, of the changes that windows publish.

    A row is not left out for a change that the pipeline's settings leave out; of an outbox that is all but a new row.
    Nothing is masked or left out of rows.
    """

    schemas: Mapping[tuple[str, str], TableSchema] = field(default_factory=dict)

    def route(self, database: str, table: str) -> Route | None:
        if (database, table) not in self.schemas:
            return None
        route, outbox = key_route(database, table), self.pipeline.outbox
        if outbox is not None and outbox.takes(database, table):
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

    def format(self) -> KeyFormat:  # type: ignore[override] # rows only: statements become nothing
        return KEYS

    @property
    def server_ids(self) -> ServerIds:
        return ServerIds(self.identity)


@dataclass(frozen=True)
class _Definition:
    """A statement at ``at`` that defines a table. ``replaces_rows`` if keys may have other rows after it than before,
    and no row event says so: rows that were read before it do not count any more."""

    at: BinlogCoordinates
    replaces_rows: bool


@dataclass(frozen=True)
class _Stretch:
    """What lies between two commit boundaries: changed keys by "database.table", and by such a name the statements that
    define the table; under "database." and "" those that may define each there, or any, and under "database" those
    that make it. ``gtids`` are of all of its transactions."""

    start: BinlogCoordinates
    end: BinlogCoordinates
    keys: Mapping[str, set[bytes]]
    definitions: Mapping[str, list[_Definition]]
    gtids: GtidSet


class TooManyChangedKeysError(PipelineBusyError):
    """The pipeline is too far behind for a snapshot beside it."""


class ChangedKeys:
    """The keys of the tables of ``schemas`` that changed between ``start`` and ``end``; both move forward.

    Read by this process, over connections of their own, a binlog file at a time. Rows of transactions that were rolled
    back are no changes. No more than ``most_keys`` are held.
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
        self._stretches: list[_Stretch] = []
        self.start = self.end = start
        self._most_keys = most_keys
        self._before = start
        self._refusal: TooManyChangedKeysError | None = None
        self._history: SchemaHistory | None = None
        """What tables were in what is read, where the rows there do not say it; answers are in it."""

    def forget(self, before: BinlogCoordinates) -> None:
        """Forget stretches that end before there: the pipeline has published them."""
        if before != self._before:
            self._before, self._refusal = before, None
        self._stretches = [each for each in self._stretches if before < each.end]
        if not self._stretches:
            self.start = self.end = before
        else:
            self.start = self._stretches[0].start

    def read_to(self, end: BinlogCoordinates) -> None:
        """Read on to ``end``, a commit boundary.

        Raises TooManyChangedKeysError, again without reading until more is forgotten; and what reading a window's
        binlog raises.
        """
        if self.end >= end:
            return
        if self._refusal is not None:
            raise self._refusal
        try:
            for stretch in self._read(self.end, end):
                self._stretches.append(stretch)
                self.end = stretch.end
        except TooManyChangedKeysError as error:
            self._refusal = error
            raise
        self.end = end

    def keys(self, table: str) -> set[bytes]:
        """The keys of "database.table" that changed."""
        return set().union(*(stretch.keys.get(table, set()) for stretch in self._stretches))

    @property
    def tables(self) -> set[str]:
        """Those of which any key changed, as "database.table"."""
        return {table for stretch in self._stretches for table, keys in stretch.keys.items() if keys}

    @property
    def gtids(self) -> GtidSet:
        """Transactions among which are those that changed the keys."""
        return GtidSet().union(*(stretch.gtids for stretch in self._stretches if any(stretch.keys.values())))

    @property
    def tables_defined(self) -> set[str]:
        """The tables that a statement defines anew, as "database.table"."""
        return {name for stretch in self._stretches for name in stretch.definitions if not name.endswith(".")} - {""}

    def defined(self, table: str) -> BinlogCoordinates | None:
        """Where the last statement begins that defines "database.table" anew, or "database"; None without one."""
        return max((each.at for each in self._definitions_of(table)), default=None)

    def replaced(self, table: str) -> BinlogCoordinates | None:
        """Where the last statement begins after which keys of "database.table" may have other rows than before, and no
        row event says so: another table has its name, for one. None without one."""
        return max((each.at for each in self._definitions_of(table) if each.replaces_rows), default=None)

    def _definitions_of(self, table: str) -> Iterator[_Definition]:
        for stretch in self._stretches:
            for name, definitions in stretch.definitions.items():
                if name in (table, "") or (name.endswith(".") and f"{table}.".startswith(name)):
                    yield from definitions

    def _read(self, start: BinlogCoordinates, end: BinlogCoordinates) -> Iterator[_Stretch]:
        connections, schemas = self._connections, self.schemas
        window = Window(connections.pipeline.name, 0, self.server_uuid, start, end, "", "", 0)
        with connections.session_on(self.server_uuid) as session:
            pieces = tuple(whole_file_slices(window, source.binlog_files(session)))
            files = window_files(connections.mysql, window, (piece.file for piece in pieces))
            task = _KeyTask(
                connections=connections,
                server_uuid=self.server_uuid,
                start=start,
                topics=WindowTopics(connections.kafka, {}, create=False),
                identity=f"{connections.pipeline.name}.keys",
                frozen_at_ms=0,
                files=files,
                slices=pieces,
                schemas=schemas,
            )
            history = self._history_from(session, window) if schemas else None
            decoder = KernelDecoder(
                task.route, lambda *table: schemas.get(table), KEYS, self.server_uuid, compared_as=task.compared_as
            )
            for piece in pieces:
                if history is not None:
                    follower = SchemaFollower(history, piece)
                    decoder.programs.schema_lookup, decoder.on_statement = follower.lookup, follower.follow
                lookup = decoder.programs.schema_lookup
                decoder.prepared_rows = PreparedRows(EarlierSlices(task, piece, lookup, None))
                blocks: list[MessageBlock] = []
                reports: list[SliceReport] = []
                held_bytes = 0
                for item in decoder.decode(dump_of(task, piece), piece):
                    if isinstance(item, MessageBlock):
                        blocks.append(replace(item, payload=_LZ4.compress(item.payload, None)))
                        held_bytes += len(blocks[-1].payload)
                        self._check(held_bytes <= _BYTES_A_KEY * self._most_keys, end)
                    else:
                        reports.append(item)
                begin, behind = (BinlogCoordinates(piece.file, position) for position in (piece.start, piece.end))
                keys = self._settled_keys(blocks, settle((piece,), reports), behind)
                statements = [each for report in reports for each in report.statements]
                for statement in statements:
                    history = history and history.advance(statement)
                self._history = history and history.reached(behind)
                definitions = _definitions(session, statements)
                gtids = GtidSet().union(*(GtidSet.parse(report.gtids) for report in reports))
                yield _Stretch(begin, behind, keys, definitions, gtids)

    def _history_from(self, session: Session, window: Window) -> SchemaHistory | None:
        """The history that ``window`` is read with; None where its rows name their columns."""
        if self._history is None or not self._history.covers(window.server_uuid, window.start):
            history = history_for(self._connections, session, window, commit_log_state(self._connections))
            pipeline = self._connections.pipeline
            self._history = answered(pipeline, history) if history and history.tables_known else None
        return self._history

    def _settled_keys(
        self, blocks: Iterable[MessageBlock], settlement: Settlement, end: BinlogCoordinates
    ) -> dict[str, set[bytes]]:
        """The keys of compressed ``blocks`` by table, but for those of changes that are void where they stand."""
        void = (*settlement.rolled_back, *settlement.prepared)
        held = sum(len(keys) for stretch in self._stretches for keys in stretch.keys.values())
        keys: dict[str, set[bytes]] = {}
        for block in blocks:
            of_block = block_keys(replace(block, payload=_LZ4.decompress(block.payload)))
            if void:
                of_block = (each for each in of_block if not any(of.holds(block.origin, each[0]) for of in void))
            keys.setdefault(block.topic.removeprefix(KEYS_OF), set()).update(key for _, key in of_block)
            self._check(held + sum(map(len, keys.values())) <= self._most_keys, end)
        return keys

    def _check(self, is_room: bool, end: BinlogCoordinates) -> None:
        if not is_room:
            name = self._connections.pipeline.name
            raise TooManyChangedKeysError(
                f"more than {self._most_keys:,} keys of the tables that are read changed between {self.start} and "
                f"{end}, and pipeline {name!r} has not published their changes: rows are read when it has. Run it "
                "beside the snapshot; or let the snapshot hold more keys in memory (changed_keys), at 150 bytes each."
            )


def block_keys(block: MessageBlock) -> Iterator[tuple[int, bytes]]:
    """Position and key of each message that has one."""
    arrays = block.arrays()
    begin = 0
    for number, position in enumerate(arrays.positions):
        if not arrays.nulls[number] & NULL_KEY:
            yield position, bytes(arrays.data[begin : arrays.ends[4 * number]])
        begin = arrays.ends[4 * number + 3]


def _definitions(session: Session, statements: Sequence[Statement]) -> dict[str, list[_Definition]]:
    if not statements:
        return {}
    server, collations = server_of(session), collation_names(session)
    found: dict[str, list[_Definition]] = {}
    for statement in statements:
        read = read_logged(statement, server, collations)
        change = read.change
        makes = isinstance(change, CreateDatabase) and not change.replace
        if read.kind in _DEFINES and not isinstance(change, AlterDatabase):
            names = [f"{name.database}.{name.table}" for name in read.tables]
            if isinstance(change, DropDatabase | CreateDatabase):
                names = [change.name if makes else f"{change.name}."]
            at = BinlogCoordinates(statement.file, statement.position)
            definition = _Definition(at, read.replaces_rows)
            for name in names or [""]:
                found.setdefault(name, []).append(definition)
    return found
