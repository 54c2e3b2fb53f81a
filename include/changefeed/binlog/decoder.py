"""Raw events of a slice in, finished blocks and the slice's accounts out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import numpy as np

from changefeed.binlog import layout, payload, rewrite
from changefeed.binlog.compiled import python_of
from changefeed.binlog.faults import NO_TABLE_MAP, TEXTS
from changefeed.binlog.framing import (
    ARTIFICIAL_FLAG,
    CHECKSUM_SIZE,
    HEADER_SIZE,
    IGNORABLE_FLAG,
    NO_CHANGE,
    DamagedEvent,
    EventType,
    FormatDescription,
    name_of,
)
from changefeed.binlog.groups import Arena, Grouper, Topics
from changefeed.binlog.gtids import TAGGED, Gtid, GtidRuns, read_tagged
from changefeed.binlog.input import Input
from changefeed.binlog.kernel import advance as kernel_advance
from changefeed.binlog.kernel import end_transaction as kernel_end_transaction
from changefeed.binlog.kernel import find_entry as kernel_find_entry
from changefeed.binlog.kernel import walk
from changefeed.binlog.program import BoundTable, ProgramBuilder, bind
from changefeed.binlog.program_memory import ProgramMemory, escaped
from changefeed.binlog.statements import Query, StatementKind
from changefeed.binlog.table_map import TableMap
from changefeed.block import Block
from changefeed.column_rules import ALL_SHOWN, ColumnRules
from changefeed.coordinates import FIRST_POSITION
from changefeed.errors import BinlogFormatError, ChangefeedError, SchemaError
from changefeed.formats.template import Format
from changefeed.reader import Router, SchemaLookup, SliceReport, Statement
from changefeed.window import Slice

BLOCK_BYTES = 1 << 20
_OUT_BYTES = 4 << 20
_MAX_OUT_BYTES = (1 << 32) - 1
_MESSAGES = 16384

advance = python_of(kernel_advance)
end_transaction = python_of(kernel_end_transaction)
find_entry = python_of(kernel_find_entry)


class KernelDecoder:
    """Decodes slices of one server's binlog; programs made for one slice serve the next.

    Not for use by two threads at once. ``router`` and ``schema_lookup`` are asked once for each table map that is new;
    for table maps without names (binlog_row_metadata=MINIMAL) again after each statement, and in each slice.
    ``columns`` are left out of the messages or masked in them; with any of them no message has a statement's text.
    ``on_statement`` is called with each statement when the blocks of all earlier rows were yielded and before any later
    row is decoded, so that a caller that follows the schema can move it forward.
    """

    def __init__(
        self,
        router: Router,
        schema_lookup: SchemaLookup,
        format: Format,
        server_uuid: str,
        *,
        columns: ColumnRules = ALL_SHOWN,
        block_bytes: int = BLOCK_BYTES,
        on_statement: Callable[[Statement], None] | None = None,
    ) -> None:
        self.router = router
        self.schema_lookup = schema_lookup
        self.server_uuid = server_uuid
        self.columns = columns
        self.block_bytes = block_bytes
        self.on_statement = on_statement
        self.memory = ProgramMemory()
        self.builder = ProgramBuilder(self.memory, format, columns)
        self.topics = Topics()
        self.arena = Arena()
        self.counters: dict[str, int] = {}
        self.tables: dict[bytes, int] = {}
        self.nameless: dict[bytes, int] = {}
        self.types: dict[int, list[int]] = {}
        self.bound: dict[str, tuple[BoundTable, int]] = {}
        self.out = np.empty(_OUT_BYTES, np.uint8)
        self.positions = np.empty(_MESSAGES, np.int64)
        self.sequences = np.empty(_MESSAGES, np.int64)
        self.groups = np.empty(_MESSAGES, np.int64)
        self.ends = np.empty(4 * _MESSAGES, np.uint32)
        self.nulls = np.empty(_MESSAGES, np.uint8)

    def decode(self, chunks: Iterable[bytes | bytearray | memoryview], piece: Slice) -> Iterator[Block | SliceReport]:
        """Yield the blocks of ``piece``, and last its SliceReport.

        ``chunks`` are raw events without packet headers, cut anywhere: the FORMAT_DESCRIPTION event first (that of the
        file, or the one a dump sends; artificial ROTATE events before it are passed over), then exactly the bytes of
        ``[piece.start, piece.end)``. Where the slice begins at 4, the FORMAT_DESCRIPTION is its first event.

        Raises BinlogFormatError with coordinates for bytes that cannot be decoded, also when ``chunks`` end early;
        SchemaError when a table's columns are not known; SettingsError for a column rule that a table cannot have.
        Blocks that were yielded before are right as they are.
        """
        self.nameless.clear()
        return SliceDecoder(self, piece).decode(chunks)


class SliceDecoder:
    """One slice on its way through the kernel."""

    def __init__(self, decoder: KernelDecoder, piece: Slice) -> None:
        self.decoder = decoder
        self.piece = piece
        self.description: FormatDescription | None = None
        self.statements: list[Statement] = []
        self._grouper = Grouper(decoder.topics, decoder.arena, piece.file, piece.number, decoder.block_bytes)
        self._gtids = GtidRuns()
        self._tagged: list[str] = []
        self._counts = np.zeros(3 * 64, np.int64)
        self._index = np.zeros(layout.ENTRY * 1024, np.int64)
        self._entries = 0
        self._query = np.zeros(4096, np.uint8)
        self._scratch = np.zeros(layout.SCRATCH_WORDS, np.int64)
        self._bytes_scratch = np.zeros(2048, np.uint8)
        self._runs = np.zeros(layout.RUN * layout.MAX_RUNS, np.int64)
        self._texts = np.zeros(layout.TEXT_BYTES, np.uint8)
        self.state = np.zeros(layout.STATE_WORDS, np.int64)
        self.state[layout.POSITION] = self.state[layout.COMMITTED] = piece.start
        self.state[layout.LEFT] = piece.size_bytes
        self.state[layout.GENERATION] = 1
        self.state[layout.INDEX_MASK] = 1023
        self._name()
        if piece.gtid:
            self._set_gtid(Gtid.parse(piece.gtid))
            self.state[layout.IN_TRANSACTION] = 1

    def decode(self, chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[Block | SliceReport]:
        source = Input()
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            while len(view):
                view = view[source.append(view) :]
                if self.description is None and not self._preamble(source):
                    continue
                yield from self.run(source)
        if self.state[layout.LEFT] != 0:
            raise self.error(f"the binlog ends {self.state[layout.LEFT]} bytes before the end of what was to be read")
        if source.filled > source.at:
            raise self.error(f"{source.filled - source.at} bytes follow the end of what was to be read")
        yield from self._flush()
        yield from self._grouper.finish()
        yield self._report()

    def run(self, source: Input) -> Iterator[Block]:
        """Run the kernel over the events in ``source`` until it holds no whole one."""
        decoder, state = self.decoder, self.state
        while True:
            state[layout.AT] = source.at
            state[layout.FILLED] = source.filled
            code = walk(
                source.data,
                state,
                decoder.memory.words,
                decoder.memory.bytes,
                self._index,
                self._texts,
                self._query,
                self._scratch,
                self._bytes_scratch,
                self._counts,
                self._runs,
                decoder.out,
                decoder.positions,
                decoder.sequences,
                decoder.groups,
                decoder.ends,
                decoder.nulls,
            )
            source.at = int(state[layout.AT])
            if code == layout.MORE:
                return
            if code == layout.ROOM:
                yield from self._make_room()
            elif code == layout.DRAIN:
                self._drain()
            elif code < 0:
                raise self.error(self._fault_text(code), source)
            else:
                try:
                    if code == layout.TABLE_WANTED:
                        self._add_table(source)
                    else:
                        yield from self._handle(source, code)
                except DamagedEvent as damage:
                    raise self.error(str(damage), source) from damage

    def run_inside(self, parts: Iterable[bytes], inner: int) -> Iterator[Block]:
        """Run events that stand in place of the one at hand: those of a compressed transaction, or a rewritten one.

        They share its position, and go on with its row numbers. ``inner`` is 1 for the former, 2 for the latter.
        """
        state = self.state
        kept = [int(state[word]) for word in (layout.AT, layout.FILLED, layout.LEFT, layout.INNER, layout.CHECKSUMS)]
        if kept[3] == 0:
            state[layout.ROW] = 0
        state[layout.INNER] = inner
        state[layout.CHECKSUMS] = 0
        state[layout.LEFT] = 1 << 62
        state[layout.ROW_AT] = 0
        source = Input(1 << 18)
        for part in parts:
            view = memoryview(part)
            while len(view):
                view = view[source.append(view) :]
                yield from self.run(source)
        if source.filled > source.at:
            raise DamagedEvent(f"{source.filled - source.at} bytes of a broken event end a compressed one")
        for word, value in zip(
            (layout.AT, layout.FILLED, layout.LEFT, layout.INNER, layout.CHECKSUMS), kept, strict=True
        ):
            state[word] = value

    def error(self, text: str, source: Input | None = None) -> ChangefeedError:
        """A BinlogFormatError with the coordinates of the event at hand."""
        where = f"binlog {self.piece.file}:{self.state[layout.POSITION]}"
        if source is not None and source.filled - source.at >= HEADER_SIZE:
            where += f", {name_of(int(source.data[source.at + 4]))}"
        return BinlogFormatError(f"{where}: {text}")

    def _fault_text(self, code: int) -> str:
        text = TEXTS.get(code, f"fault {code}")
        if code == NO_TABLE_MAP:
            text += f" (table id {self.state[layout.NO_TABLE]})"
        if self.state[layout.INNER]:
            text += " (inside a compressed event)"
        return text

    @property
    def committed(self) -> int:
        """Position of the last commit boundary that was reached: what is before it are whole transactions."""
        return int(self.state[layout.COMMITTED])

    # --- the beginning

    def _name(self) -> None:
        names = f"{self.decoder.server_uuid}/{self.piece.file}:".encode()
        file = self.piece.file.encode()
        if len(names) > layout.GTID_TEXT - layout.NAMES:
            raise self.error("the file's name is longer than changefeed can carry in event ids")
        self._texts[layout.NAMES : layout.NAMES + len(names)] = np.frombuffer(names, np.uint8)
        self.state[layout.NAMES_SIZE] = len(names)
        self.state[layout.FILE_AT] = layout.NAMES + len(names) - 1 - len(file)
        self.state[layout.FILE_SIZE] = len(file)

    def _preamble(self, source: Input) -> bool:
        """Read up to the FORMAT_DESCRIPTION; False while it is not all there."""
        while source.filled - source.at >= HEADER_SIZE:
            _, kind, _, size, _, flags = source.header()
            if kind not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION) or not HEADER_SIZE <= size <= 4096:
                raise self.error(
                    f"found {name_of(kind)} of {size} bytes where FORMAT_DESCRIPTION should begin: this is no binlog"
                )
            if source.filled - source.at < size:
                return False
            if kind == EventType.ROTATE:
                if not flags & ARTIFICIAL_FLAG:
                    raise self.error("found ROTATE where FORMAT_DESCRIPTION should begin")
                source.at += size
                continue
            counted = self.piece.start == FIRST_POSITION
            try:
                self._describe(source.event(size))
            except DamagedEvent as damage:
                raise self.error(str(damage), source) from damage
            if not counted:
                source.at += size
            return True
        return False

    def _describe(self, event: bytes) -> None:
        self.description = FormatDescription.parse(event[HEADER_SIZE:])
        self.state[layout.CHECKSUMS] = int(self.description.checksum)

    # --- room, and the end

    def _flush(self) -> Iterator[Block]:
        decoder, state = self.decoder, self.state
        count = int(state[layout.MESSAGES])
        state[layout.MESSAGES] = 0
        state[layout.OUT] = 0
        yield from self._grouper.add(
            count, decoder.out, decoder.positions, decoder.sequences, decoder.groups, decoder.ends, decoder.nulls
        )

    def _make_room(self) -> Iterator[Block]:
        decoder = self.decoder
        if self.state[layout.MESSAGES]:
            yield from self._flush()
            return
        if len(decoder.out) >= _MAX_OUT_BYTES:
            raise self.error(f"a row's messages take more than {_MAX_OUT_BYTES} bytes")
        decoder.out = np.empty(min(2 * len(decoder.out), _MAX_OUT_BYTES), np.uint8)

    def _drain(self) -> None:
        for index in range(int(self.state[layout.RUNS])):
            kind, a, b, first, last = (int(word) for word in self._runs[layout.RUN * index : layout.RUN * (index + 1)])
            self._gtids.add(kind, a, b, first, last, self._tagged[a] if kind == TAGGED else "")
        self.state[layout.RUNS] = 0

    def _report(self) -> SliceReport:
        self._drain()
        state = self.state
        rows: dict[str, dict[str, int]] = {}
        for name, counter in self.decoder.counters.items():
            counts = self._counts[3 * counter : 3 * counter + 3].tolist()
            if any(counts):
                rows[name] = {op: count for op, count in zip("cud", counts, strict=True) if count}
        return SliceReport(
            slice=self.piece.number,
            size_bytes=int(state[layout.BYTES]),
            events=int(state[layout.EVENTS]),
            rows=rows,
            skipped_rows=int(state[layout.SKIPPED_ROWS]),
            transactions=int(state[layout.TRANSACTIONS]),
            gtids=self._gtids.text(),
            first_ts_seconds=int(state[layout.FIRST_TS]),
            last_ts_seconds=int(state[layout.LAST_TS]),
            statements=tuple(self.statements),
        )

    # --- table maps

    def _add_table(self, source: Input) -> None:
        decoder = self.decoder
        size, body = self._event(source)
        table_map = TableMap.parse(body, self._is_mariadb())
        key = body[6:]
        known = decoder.tables if table_map.has_names else decoder.nameless
        table = known.get(key)
        if table is None:
            table = known[key] = self._build(table_map)
        if 2 * self._entries >= len(self._index) // layout.ENTRY:
            self._grow_index()
        mask = int(self.state[layout.INDEX_MASK])
        at = find_entry(self._index, mask, table_map.table_id)
        if self._index[at] == 0:
            self._entries += 1
        place = decoder.memory.place_bytes(key)
        generation = int(self.state[layout.GENERATION])
        self._index[at : at + layout.ENTRY] = (table_map.table_id + 1, table, place, len(key), generation)
        self._pass(source, size)

    def _grow_index(self) -> None:
        old = self._index
        self._index = np.zeros(2 * len(old), np.int64)
        mask = len(self._index) // layout.ENTRY - 1
        self.state[layout.INDEX_MASK] = mask
        for at in range(0, len(old), layout.ENTRY):
            if old[at]:
                to = find_entry(self._index, mask, int(old[at]) - 1)
                self._index[to : to + layout.ENTRY] = old[at : at + layout.ENTRY]

    def _build(self, table_map: TableMap) -> int:
        decoder = self.decoder
        database, name = table_map.database, table_map.table
        route = decoder.router(database, name)
        schema = None
        if route is not None and not table_map.has_names:
            schema = decoder.schema_lookup(database, name)
        elif route is not None and self._is_mariadb():  # whose metadata leaves out which BINARY is a UUID or an INET
            with suppress(SchemaError):  # FULL metadata speaks for itself
                schema = decoder.schema_lookup(database, name)
        try:
            table = bind(table_map, schema)
        except SchemaError as error:
            raise SchemaError(f"binlog {self.piece.file}:{self.state[layout.POSITION]}: {error}") from error
        group = decoder.topics.group_of(route.topic, route.partitions) if route is not None else 0
        counter = decoder.counters.setdefault(f"{database}.{name}", len(decoder.counters))
        if 3 * counter >= len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(3 * (counter + 1), np.int64)])
        place = decoder.builder.table(table, route, group, counter, rewrite.is_needed(table_map))
        decoder.types[place] = [column.type for column in table_map.columns]
        decoder.bound[f"{database}.{name}"] = (table, place)
        return place

    def _is_mariadb(self) -> bool:
        return self.description is not None and self.description.is_mariadb

    # --- events that Python handles

    def _event(self, source: Input) -> tuple[int, bytes]:
        """Size of the event at hand, and its bytes between header and checksum."""
        size = source.header()[3]
        end = source.at + size - CHECKSUM_SIZE * int(self.state[layout.CHECKSUMS])
        return size, source.data[source.at + HEADER_SIZE : end].tobytes()

    def _pass(self, source: Input, size: int) -> None:
        """Pass over the event at hand, and count it."""
        advance(self.state, size)
        source.at += size

    def _handle(self, source: Input, code: int) -> Iterator[Block]:
        _, kind, _, size, _, flags = source.header()
        if self.state[layout.INNER] and kind not in _MAY_BE_INSIDE and code != layout.REWRITE:
            raise DamagedEvent(f"{name_of(kind)} stands inside a compressed transaction")
        match kind:
            case EventType.QUERY | EventType.EXECUTE_LOAD_QUERY | EventType.MARIADB_QUERY_COMPRESSED:
                yield from self._statement(source, kind)
            case EventType.TRANSACTION_PAYLOAD:
                yield from self.run_inside(payload.parts(self._event(source)[1]), 1)
            case EventType.GTID_TAGGED:
                self._open_transaction()
                gtid = read_tagged(self._event(source)[1])
                if gtid is not None:
                    self._set_gtid(gtid)
            case EventType.XA_PREPARE:
                end_transaction(self.state, self._runs)
            case EventType.ROWS_QUERY:
                self._set_query(self._event(source)[1][1:])
            case EventType.MARIADB_ANNOTATE_ROWS:
                self._set_query(self._event(source)[1])
            case EventType.FORMAT_DESCRIPTION:
                self._describe(source.event(size))
            case EventType.INCIDENT:
                raise DamagedEvent(self._incident(self._event(source)[1]))
            case EventType.MARIADB_START_ENCRYPTION:
                raise DamagedEvent(
                    "the file is encrypted (encrypt_binlog): it can be read from the server, not from disk"
                )
            case _ if kind in rewrite.TYPES or code == layout.REWRITE:
                yield from self._rewritten(source, kind)
            case _ if kind in NO_CHANGE or flags & IGNORABLE_FLAG:
                pass
            case EventType.GTID | EventType.ANONYMOUS_GTID | EventType.MARIADB_GTID:
                raise DamagedEvent("a transaction begins inside another one")
            case _:
                raise DamagedEvent("changefeed does not know how to read this type of event")
        self._pass(source, size)

    def _rewritten(self, source: Input, kind: int) -> Iterator[Block]:
        """Run the plain event that stands for the rows event at hand."""
        size, body = self._event(source)
        event = source.event(size)
        if kind in rewrite.COMPRESSED_TYPES:
            yield from self.run_inside([rewrite.inflated(event, body, kind)], max(1, int(self.state[layout.INNER])))
            return
        entry = find_entry(self._index, int(self.state[layout.INDEX_MASK]), rewrite.table_id_of(body))
        if self._index[entry] == 0 or self._index[entry + layout.ENTRY_GENERATION] != self.state[layout.GENERATION]:
            raise DamagedEvent(TEXTS[NO_TABLE_MAP])
        table = int(self._index[entry + layout.ENTRY_TABLE])
        images = rewrite.Images(self.decoder.memory.words, table, self.decoder.types[table])
        partial = kind == EventType.PARTIAL_UPDATE_ROWS
        plain = images.whole(event, body) if partial else images.unpacked(event, body, kind)
        yield from self.run_inside([plain], 2)

    def _statement(self, source: Input, kind: int) -> Iterator[Block]:
        _, body = self._event(source)
        state = self.state
        query = Query.parse(
            body,
            compressed=kind == EventType.MARIADB_QUERY_COMPRESSED,
            load=kind == EventType.EXECUTE_LOAD_QUERY,
        )
        what = query.kind
        inside = state[layout.IN_TRANSACTION] == 1
        if what is StatementKind.BEGIN:
            if inside and not self._is_mariadb():
                raise DamagedEvent("a transaction begins inside another one")
            state[layout.IN_TRANSACTION] = 1
        elif what is StatementKind.XA_START:
            state[layout.IN_TRANSACTION] = 1
            self._set_xid(query.sql)
        elif what is StatementKind.COMMIT:
            end_transaction(state, self._runs)
        elif what not in (StatementKind.SAVEPOINT, StatementKind.XA_END):
            if self.decoder.on_statement is not None:  # which may put something of its own behind the rows before it
                yield from self._flush()
                yield from self._grouper.finish()
            self._report_statement(source, query)
            if not inside or what is StatementKind.ROLLBACK:
                end_transaction(state, self._runs)

    def _report_statement(self, source: Input, query: Query) -> None:
        state = self.state
        seconds, _, server_id, size, _, flags = source.header()
        if state[layout.FIRST_TS] == 0:
            state[layout.FIRST_TS] = seconds
        state[layout.LAST_TS] = seconds
        statement = Statement(
            self.piece.file,
            int(state[layout.POSITION]),
            seconds,
            self._texts[layout.GTID_TEXT : layout.GTID_TEXT + int(state[layout.GTID_SIZE])].tobytes().decode(),
            query.database,
            query.sql,
            query.variables.hex(),
            server_id,
            size,
            flags,
        )
        self.statements.append(statement)
        self.decoder.nameless.clear()
        # A table map without names may mean other columns from here on, even if its bytes are the same.
        self._index[:] = 0
        self._entries = 0
        if self.decoder.on_statement is not None:
            self.decoder.on_statement(statement)

    def _open_transaction(self) -> None:
        state = self.state
        if state[layout.IN_TRANSACTION] == 1:
            raise DamagedEvent("a transaction begins inside another one")
        state[layout.IN_TRANSACTION] = 2
        state[layout.GTID_KIND] = 0
        state[layout.GTID_SIZE] = 0

    def _set_gtid(self, gtid: Gtid) -> None:
        state = self.state
        text = gtid.text.encode()
        self._texts[layout.GTID_TEXT : layout.GTID_TEXT + len(text)] = np.frombuffer(text, np.uint8)
        state[layout.GTID_SIZE] = len(text)
        state[layout.GTID_KIND] = gtid.kind
        state[layout.GTID_A] = gtid.a
        state[layout.GTID_B] = gtid.b
        state[layout.GTID_NUMBER] = gtid.number
        if gtid.kind == TAGGED:
            if not self._tagged or self._tagged[-1] != gtid.prefix:
                self._tagged.append(gtid.prefix)
            state[layout.GTID_A] = len(self._tagged) - 1
            state[layout.GTID_B] = 0

    def _set_query(self, text: bytes) -> None:
        quoted = f'"{escaped(text.decode("utf-8", "replace"))}"'.encode()
        if len(quoted) > len(self._query):
            self._query = np.empty(2 * len(quoted), np.uint8)
        self._query[: len(quoted)] = np.frombuffer(quoted, np.uint8)
        self.state[layout.QUERY_SIZE] = len(quoted)

    def _set_xid(self, sql: str) -> None:
        xid = sql.split(None, 2)[2] if len(sql.split(None, 2)) == 3 else ""
        quoted = f'"{escaped(xid)}"'.encode()
        if len(quoted) > layout.ID_TEXT - layout.XID_TEXT:
            raise DamagedEvent(f"an XA transaction's xid has {len(quoted)} characters")
        self._texts[layout.XID_TEXT : layout.XID_TEXT + len(quoted)] = np.frombuffer(quoted, np.uint8)
        self.state[layout.XID_SIZE] = len(quoted)

    @staticmethod
    def _incident(body: bytes) -> str:
        number = int.from_bytes(body[:2], "little")
        text = body[3 : 3 + body[2]].decode("utf-8", "replace") if len(body) > 2 else ""
        return (
            f"the server reports incident {number} ({text}): changes may be missing from its binlog. Take a snapshot "
            "of the tables, then seek behind this event"
        )


_MAY_BE_INSIDE = frozenset(
    {EventType.QUERY, EventType.ROWS_QUERY, EventType.PARTIAL_UPDATE_ROWS, EventType.XA_PREPARE, *rewrite.TYPES}
    | (NO_CHANGE - {EventType.ROTATE})
)
