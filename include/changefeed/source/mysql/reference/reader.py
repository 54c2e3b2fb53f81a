"""A `SliceReader` that decodes with mysql-replication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from changefeed.binlog.events.framing import HEADER_SIZE, NO_CHANGE, OPENING, EventType, is_in_file
from changefeed.binlog.events.gtids import commit_micros
from changefeed.binlog.events.query_event import Query, TransactionStep, savepoint_of, transaction_step
from changefeed.binlog.transaction_events import TransactionEvents
from changefeed.binlog.unfinished import Routed
from changefeed.errors import BinlogFormatError
from changefeed.formats import render
from changefeed.formats.format import RowFormat
from changefeed.formats.style import Encoding, Kind
from changefeed.formats.template import OF_SERVER, Op
from changefeed.model.binlog_order import join_runs, source_and_number
from changefeed.model.gtid import GtidSet
from changefeed.model.route import Route, Router, SchemaLookup
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.model.transaction_event import RowEffect, TransactionEvent
from changefeed.model.window import ANONYMOUS, Slice
from changefeed.records.block import FOREIGN_KEYS_HEADER, ForeignKeys, Header, Message, MessageBlock, pack, sequence_of
from changefeed.records.partition import partition_of
from changefeed.source.mysql.reference import events
from changefeed.source.mysql.reference.tables import schema_of
from changefeed.source.mysql.reference.values import MisreadValue, check_style, json_value

BLOCK_BYTES = 1_000_000
_EFFECTS = {
    TransactionStep.SAVEPOINT: RowEffect.SAVEPOINT,
    TransactionStep.ROLLBACK_TO: RowEffect.ROLLBACK_TO,
    TransactionStep.ROLLBACK: RowEffect.ROLLBACK,
}


@dataclass
class _Table:
    """The table of a table id: its columns as mysql-replication's objects and as a schema, and its route."""

    library: Any
    schema: TableSchema
    route: Route | None


@dataclass
class _Accounts:
    """The counts of the slice so far, for its report."""

    position: int
    events: int = 0
    transactions: int = 0
    skipped_rows: int = 0
    rows: dict[str, Counter[str]] = field(default_factory=dict)
    gtids: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """The GTIDs of transactions that were not rolled back."""
    statements: list[Statement] = field(default_factory=list)
    transaction_events: TransactionEvents = field(default_factory=TransactionEvents)
    open_since: int | None = None
    first_ts_seconds: int = 0
    last_ts_seconds: int = 0


class ReferenceReader:
    """Decodes slices with mysql-replication; the contract is `changefeed.binlog.slice_reader.SliceReader`.

    Use it for comparison, not in production. It refuses types that the library does not support (TRANSACTION_PAYLOAD,
    tagged GTIDs and others). The library reads some values wrongly (negative fractional TIME).
    """

    def __init__(
        self,
        stream: Iterable[bytes],
        *,
        is_mariadb: bool,
        version: tuple[int, int],
        server_uuid: str,
        router: Router,
        schemas: SchemaLookup,
        format: RowFormat,
    ) -> None:
        check_style(format.style)
        self._stream = stream
        self._library = events.LibraryDecoder(is_mariadb, version)
        self._server_uuid, self._is_mariadb = server_uuid, is_mariadb
        self._router, self._schemas, self._format = router, schemas, format
        self._tables: dict[int, _Table] = {}
        self._gtid, self._commit_micros, self._thread = "", 0, 0
        self._query: str | None = None
        self._statement_row = 0

    def read(self, slice: Slice) -> Iterator[MessageBlock | SliceReport]:
        """Yield the slice's blocks, and last its report.

        Raises BinlogFormatError, with coordinates, for an event or a value that the library cannot decode."""
        self._gtid, self._query = slice.gtid.replace(ANONYMOUS, ""), None
        self._commit_micros, self._thread = slice.commit_micros, slice.thread
        accounts = _Accounts(slice.start, open_since=slice.start if slice.gtid else None)
        blocks = _Blocks(slice)
        for raw in events.raw_events(self._stream):
            if raw.type == EventType.FORMAT_DESCRIPTION:
                self._library.format_description(raw)
                self._tables.clear()
            if not is_in_file(raw.type, raw.next_position, raw.flags, accounts.position):
                continue
            for topic_partition, message in self._messages(raw, slice, accounts):
                yield from blocks.add(topic_partition, message)
            accounts.position += raw.size_bytes
            accounts.events += 1
            if accounts.position >= slice.end:
                break
        yield from blocks.rest()
        yield SliceReport(
            slice=slice.number,
            size_bytes=accounts.position - slice.start,
            events=accounts.events,
            rows={table: dict(ops) for table, ops in accounts.rows.items()},
            skipped_rows=accounts.skipped_rows,
            transactions=accounts.transactions,
            gtids=str(GtidSet.parse(",".join(accounts.gtids))),
            order=join_runs((source, number, number) for source, number in map(source_and_number, accounts.order)),
            first_ts_seconds=accounts.first_ts_seconds,
            last_ts_seconds=accounts.last_ts_seconds,
            statements=tuple(accounts.statements),
            transaction_events=accounts.transaction_events.report(accounts.open_since),
            open_since=accounts.open_since,
        )

    def _messages(self, raw: events.RawEvent, slice: Slice, accounts: _Accounts) -> Iterator[Routed]:
        accounts.first_ts_seconds = accounts.first_ts_seconds or raw.ts_seconds
        accounts.last_ts_seconds = max(accounts.last_ts_seconds, raw.ts_seconds)
        if raw.type in NO_CHANGE or raw.type == EventType.FORMAT_DESCRIPTION:
            return
        if raw.type in OPENING and accounts.open_since is None:
            accounts.open_since = accounts.position
        if raw.type in OPENING:
            self._commit_micros, self._thread = commit_micros(raw.type, raw.data[HEADER_SIZE:]), 0
        if raw.type == EventType.ANONYMOUS_GTID:
            self._gtid = ""
            return
        where = f"{slice.file}:{accounts.position}"
        if raw.type not in events.DECODED:
            raise BinlogFormatError(
                f"event of type {raw.type} at {where} is unknown to reader 'reference': it may carry changes, so "
                "it is not skipped. Use the pipeline's default reader."
            )
        event = self._library.decode(raw, where)
        match type(event).__name__:
            case "GtidEvent" | "MariadbGtidEvent":
                self._gtid = event.gtid
            case "XidEvent":
                self._end_transaction(accounts)
            case "QueryEvent":
                self._take_query(event, raw, slice, accounts)
            case "RowsQueryLogEvent":
                self._query = event.query
            case "MariadbAnnotateRowsEvent":
                self._query = event.sql_statement.decode("utf-8", "replace")
            case "TableMapEvent":
                route = self._router(event.schema, event.table)
                schema = TableSchema(event.schema, event.table, ())
                if route:
                    by_server = all(column.name for column in event.columns)
                    schema = schema_of(event, self._schemas, is_mariadb=self._is_mariadb)
                    schema = route.key.keyed_table(schema, by_server=by_server)
                self._tables[event.table_id] = _Table(event, schema, route)
            case "WriteRowsEvent" | "UpdateRowsEvent" | "DeleteRowsEvent":
                yield from self._take_rows(event, raw, slice, accounts)

    def _take_query(self, event: Any, raw: events.RawEvent, slice: Slice, accounts: _Accounts) -> None:
        step = transaction_step(event.query)
        if step is TransactionStep.BEGIN:
            self._thread = event.slave_proxy_id
        if step is None:
            query = Query(event.schema.decode("utf-8", "replace"), event.query)
            header = (raw.ts_seconds, raw.type, raw.server_id, raw.size_bytes, raw.next_position, raw.flags)
            accounts.statements.append(query.statement(header, slice.file, accounts.position, self._gtid))
            self._end_transaction(accounts)
        elif accounts.open_since is None:
            accounts.open_since = accounts.position  # the server writes no GTID event before a BEGIN
        elif step in _EFFECTS:
            name = "" if step is TransactionStep.ROLLBACK else savepoint_of(event.query)
            end = accounts.position + raw.size_bytes
            accounts.transaction_events.add(
                TransactionEvent(_EFFECTS[step], accounts.open_since, accounts.position, end, name)
            )
        if step in (TransactionStep.COMMIT, TransactionStep.ROLLBACK):
            self._end_transaction(accounts, rolled_back=step is TransactionStep.ROLLBACK)

    def _end_transaction(self, accounts: _Accounts, *, rolled_back: bool = False) -> None:
        accounts.transactions += 1
        accounts.open_since = None
        if self._gtid:
            accounts.gtids.append(self._gtid)
            accounts.order += [] if rolled_back else [self._gtid]
        self._query, self._statement_row = None, 0
        self._commit_micros, self._thread = 0, 0

    def _take_rows(self, event: Any, raw: events.RawEvent, slice: Slice, accounts: _Accounts) -> Iterator[Routed]:
        yield from self._routed_rows(event, raw, slice, accounts)
        if event.flags & 1:  # the last rows event of its statement
            self._statement_row = 0

    def _routed_rows(self, event: Any, raw: events.RawEvent, slice: Slice, accounts: _Accounts) -> Iterator[Routed]:
        table = self._tables.get(event.table_id)
        if table is None:
            raise BinlogFormatError(f"rows at {slice.file}:{accounts.position} are of a table without a TABLE_MAP")
        if table.route is None:
            accounts.skipped_rows += len(event.rows)
            return
        op: Op = {"WriteRowsEvent": "c", "UpdateRowsEvent": "u", "DeleteRowsEvent": "d"}[type(event).__name__]  # type: ignore[assignment]
        counted = accounts.rows.setdefault(f"{table.schema.database}.{table.schema.table}", Counter())
        header = render.EventHeader(raw.type, raw.size_bytes, accounts.position + raw.size_bytes, raw.flags)
        for number, row in enumerate(event.rows):
            counted[op] += 1
            try:
                before, after = _images(op, row, table.library, self._format.style[Kind.BIT])
            except MisreadValue as error:
                raise BinlogFormatError(
                    f"row {number} at {slice.file}:{accounts.position}, of `{table.schema.database}`."
                    f"`{table.schema.table}`, cannot be read by reader 'reference': {error}. Use the default "
                    "reader."
                ) from error
            change = render.RowChange(
                op, before, after, slice.file, accounts.position, number, self._gtid, raw.server_id, raw.ts_seconds,
                self._query, event=header, server_uuid=self._server_uuid, thread=self._thread,
                commit_micros=self._commit_micros, statement_row=self._statement_row,
            )  # fmt: skip
            for message in self._row_messages(change, table.schema, _on_foreign_keys(table.library.flags, event.flags)):
                yield self._topic_partition(table.route, table.schema, message), message
            self._statement_row += 1

    def _topic_partition(self, route: Route, schema: TableSchema, message: Message) -> tuple[str, int]:
        """The topic-partition of a message.

        If there is a GTID, the partition does not depend on a key with coordinates, which differ on each server."""
        is_spread = bool(message.gtid) and not OF_SERVER.isdisjoint(self._format.key(schema) or ())
        partition = partition_of(
            None if is_spread else message.key,
            message.event_id,
            route.partitions,
            gtid=message.gtid,
            statement_row=self._statement_row,
        )
        return route.topic, partition

    def _row_messages(self, change: render.RowChange, schema: TableSchema, more: Sequence[Header]) -> Iterator[Message]:
        row_id = f"{self._server_uuid}/{change.file}:{change.position}/{change.row}"
        for message in render.messages(self._format, schema, change):
            yield Message(
                change.position,
                sequence_of(change.row, message.step),
                message.key,
                message.value,
                (row_id + (f"/{message.step:d}" if message.step else "")).encode(),
                change.gtid.encode(),
                (*message.headers, *more),
                change.ts_seconds,
            )


def _on_foreign_keys(of_table: int, of_rows: int) -> Sequence[Header]:
    """The header on foreign keys, or no header, by the flags of a TABLE_MAP and of a rows event."""
    if of_rows & 0x02:
        said = ForeignKeys.UNCHECKED
    elif not of_table & 0x02:
        return ()
    else:
        said = ForeignKeys.LOGGED if of_rows & 0x10 else ForeignKeys.INNODB
    return ((FOREIGN_KEYS_HEADER, said.name.lower().encode()),)


def _images(
    op: Op, row: dict[str, Any], library: Any, bits: Encoding
) -> tuple[dict[str, object] | None, dict[str, object] | None]:
    """The before and the after image of the library's ``row``. Raises MisreadValue."""
    if op == "u":
        before = _image(row["before_values"], row["before_none_sources"], library, bits)
        return before, _image(row["after_values"], row["after_none_sources"], library, bits)
    image = _image(row["values"], row["none_sources"], library, bits)
    return (None, image) if op == "c" else (image, None)


def _image(values: dict[str, Any], none_sources: dict[str, str], library: Any, bits: Encoding) -> dict[str, object]:
    return {
        column.name: json_value(values[column.name], none_sources.get(column.name), column, bits)
        for column in library.columns
    }


class _Blocks:
    """Collects messages of a slice by topic-partition, and returns blocks when they are full."""

    def __init__(self, slice: Slice) -> None:
        self._slice = slice
        self._held: dict[tuple[str, int], list[Message]] = {}
        self._sizes: Counter[tuple[str, int]] = Counter()
        self._count = 0

    def add(self, topic_partition: tuple[str, int], message: Message) -> Iterator[MessageBlock]:
        self._held.setdefault(topic_partition, []).append(message)
        self._sizes[topic_partition] += len(message.value or b"") + len(message.key or b"") + 150
        if self._sizes[topic_partition] >= BLOCK_BYTES:
            yield self._block(topic_partition)

    def rest(self) -> Iterator[MessageBlock]:
        for topic_partition in list(self._held):
            yield self._block(topic_partition)

    def _block(self, topic_partition: tuple[str, int]) -> MessageBlock:
        messages = self._held.pop(topic_partition)
        del self._sizes[topic_partition]
        self._count += 1
        return MessageBlock(*topic_partition, self._slice.file, self._slice.number, self._count, pack(messages))
