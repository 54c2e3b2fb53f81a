"""The decoder of one slice: it turns raw events into blocks of messages and a report of the slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from changefeed.binlog.accounts import CountedRows
from changefeed.binlog.events import payload, rewrite
from changefeed.binlog.events.framing import (
    ARTIFICIAL_FLAG,
    CHECKSUM_SIZE,
    HEADER,
    HEADER_SIZE,
    IGNORABLE_FLAG,
    NO_CHANGE,
    OPENING,
    DamagedEvent,
    EventType,
    Fields,
    FormatDescription,
    incident_of,
    name_of,
    unreadable_reason,
)
from changefeed.binlog.events.gtids import Gtid, commit_micros, gtid_of, read_tagged
from changefeed.binlog.events.input import Input
from changefeed.binlog.events.query_event import Query, TransactionStep, prepared_xid, savepoint_of, xid_of, xid_of_gtid
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.groups import Buffers
from changefeed.binlog.kernel import faults, layout
from changefeed.binlog.kernel.faults import NO_TABLE_MAP, TEXTS
from changefeed.binlog.kernel.rows_event import end_statement as kernel_end_statement
from changefeed.binlog.kernel.transactions import end_transaction as kernel_end_transaction
from changefeed.binlog.kernel.walk import advance as kernel_advance
from changefeed.binlog.kernel_run import KernelRun
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.binlog.programs.programs import Programs
from changefeed.binlog.transaction_events import TransactionEvents
from changefeed.binlog.unfinished import Routed, RowTransformer
from changefeed.errors import ChangefeedError, SchemaError
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.transaction_event import PreparedTransaction, RowEffect, TransactionEvent, UnknownSavepoint
from changefeed.model.window import ANONYMOUS, Slice
from changefeed.native.compiled import python_of
from changefeed.records.block import MessageBlock

_ALLOWED_INSIDE = frozenset(
    {EventType.QUERY, EventType.ROWS_QUERY, EventType.PARTIAL_UPDATE_ROWS, EventType.XA_PREPARE, *rewrite.TYPES}
    | (NO_CHANGE - {EventType.ROTATE})
)

_OF_VALUES = frozenset(
    {
        *(faults.JSON_OFFSET, faults.JSON_TYPE, faults.JSON_DEEP, faults.LABEL, faults.DECIMAL_DIGITS),
        *(faults.TEMPORAL_RANGE, faults.TEMPORAL_FORM, faults.VECTOR_WIDTH),
        *(faults.MISSING_COLUMN, faults.NULL_COLUMN, faults.FILTER_ABSENT, faults.KEY_ABSENT),
    }
)
"""Faults of a row's values, which the rows of other tables do not have. Other faults may be of damaged bytes."""

_SAVED_WORDS = (
    layout.AT, layout.FILLED, layout.LEFT, layout.INNER, layout.CHECKSUMS, layout.EVENT_TYPE, layout.EVENT_SIZE,
)  # fmt: skip
"""The words of the state that are saved before events inside another event are decoded, and restored afterwards."""

advance = python_of(kernel_advance)
end_transaction = python_of(kernel_end_transaction)
end_statement = python_of(kernel_end_statement)


class SliceDecoder(KernelRun):
    """Decodes one slice of a binlog: runs the kernel, and processes the events that need Python."""

    def __init__(
        self,
        slice: Slice,
        programs: Programs,
        buffers: Buffers,
        server_uuid: str,
        *,
        block_bytes: int,
        on_statement: Callable[[Statement], None] | None,
        prepared: PreparedRows | None,
        finisher: RowTransformer | None,
    ) -> None:
        super().__init__(
            programs,
            buffers,
            server_uuid,
            origin=slice.file,
            number=slice.number,
            file=slice.file,
            position=slice.start,
            block_bytes=block_bytes,
            finisher=finisher,
        )
        self.slice = slice
        self.description: FormatDescription | None = None
        self._on_statement = on_statement
        self._transaction_events = TransactionEvents()
        self._inputs: list[tuple[int, bytes]] = []
        """Type and body of the INTVAR, RAND and USER_VAR events before the next statement."""
        self._prepared = prepared
        self._payload_end = 0
        self.state[layout.LEFT] = slice.size_bytes
        if slice.gtid not in ("", ANONYMOUS):
            self._texts.set_gtid(Gtid.parse(slice.gtid))
        self.state[layout.IN_TRANSACTION] = self.state[layout.IN_PARTS] = bool(slice.gtid)
        self.state[[layout.COMMIT_MICROS, layout.THREAD]] = slice.commit_micros, slice.thread

    def decode(self, chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[MessageBlock | SliceReport]:
        """Yield the blocks of the slice, and last its report; see `KernelDecoder.decode`."""
        source = Input()
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            while len(view):
                view = view[source.append(view) :]
                if self.description is None and not self._read_description(source):
                    continue
                yield from self.run(source)
        if self.state[layout.LEFT] != 0:
            raise self.error(f"expected {self.state[layout.LEFT]} more bytes of the slice, found the end of the binlog")
        if source.filled > source.at:
            raise self.error(f"expected the end of the slice, found {source.filled - source.at} more bytes")
        yield from self.finish()

    def _decode_inside(self, outer: Input, parts: Iterable[bytes], inner: int) -> Iterator[MessageBlock]:
        """Decode the events in ``parts`` instead of the current event of ``outer``; yields the full blocks.

        These events have the position of the outer event, and their rows are numbered consecutively. ``inner`` is 1 for
        the events of a compressed transaction, 2 for the current event in a form that the kernel can decode.
        """
        state = self.state
        saved = {word: int(state[word]) for word in _SAVED_WORDS}
        _, kind, _, size, _, _ = outer.header()
        if saved[layout.INNER] == 0:
            state[layout.ROW] = 0
            state[layout.EVENT_END] = state[layout.POSITION] + size
        if kind != EventType.TRANSACTION_PAYLOAD and saved[layout.EVENT_TYPE] == 0:
            state[layout.EVENT_TYPE], state[layout.EVENT_SIZE] = kind, size
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
            raise DamagedEvent(f"a compressed event ends with {source.filled - source.at} bytes of an incomplete event")
        for word, value in saved.items():
            state[word] = value

    @property
    def name(self) -> str:
        """The word for a binlog file, for error messages."""
        return "binlog"

    def _fault_text(self, code: int) -> str:
        return super()._fault_text(code) + (" (inside a compressed event)" if self.state[layout.INNER] else "")

    def _fault(self, code: int, source: Input) -> ChangefeedError:
        error = super()._fault(code, source)
        if code not in _OF_VALUES:
            return error
        header = self._index.table(rewrite.table_id_of(self._event(source)[1]))
        return error.of_tables(*(name for name, (_, at) in self._programs.bound.items() if at == header))

    @property
    def last_commit(self) -> int:
        """The position of the last commit boundary up to the current event."""
        return int(self.state[layout.COMMITTED])

    # --- the FORMAT_DESCRIPTION event at the beginning

    def _read_description(self, source: Input) -> bool:
        """Read the events up to the FORMAT_DESCRIPTION; returns False if ``source`` does not have all of it yet."""
        while source.filled - source.at >= HEADER_SIZE:
            _, kind, _, size, _, flags = source.header()
            if kind == EventType.START_V3:
                raise self.error(f"the file begins with {name_of(kind)}: {unreadable_reason(kind)}")
            if kind not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION) or not HEADER_SIZE <= size <= 4096:
                raise self.error(
                    f"expected FORMAT_DESCRIPTION, found {name_of(kind)} of {size} bytes: the file is not a binlog"
                )
            if source.filled - source.at < size:
                return False
            if kind == EventType.ROTATE:
                if not flags & ARTIFICIAL_FLAG:
                    raise self.error("expected FORMAT_DESCRIPTION, found ROTATE")
                source.at += size
                continue
            is_in_slice = self.slice.start == FIRST_POSITION
            try:
                self._set_description(source.event(size))
            except DamagedEvent as damage:
                raise self.error(str(damage), source) from damage
            if not is_in_slice:
                source.at += size
            return True
        return False

    def _set_description(self, event: bytes) -> None:
        self.description = FormatDescription.parse(event[HEADER_SIZE:])
        self.state[layout.CHECKSUMS] = int(self.description.checksum)

    # --- table maps

    def _add_table(self, source: Input) -> None:
        programs = self._programs
        size, body = self._event(source)
        try:
            table = programs.of_event(body, is_mariadb=self._is_mariadb())
        except SchemaError as error:
            text = f"binlog {self.slice.file}:{self.state[layout.POSITION]}: {error}"
            raise type(error)(text).of_tables(*error.tables) from error
        self._accounts.make_room(len(programs.counters))
        self._index.put(rewrite.table_id_of(body), table, programs.memory.place_bytes(body[6:]), len(body) - 6)
        if programs.memory.words[table + layout.TABLE_CAPTURED] == layout.CAPTURED:
            _, database, name = TableMap.names(Fields(body))
            self._accounts.add_commit(f"{database}.{name}", self._commit_micros(source))
        self._skip(source, size)

    def _commit_micros(self, source: Input) -> int:
        """When the current transaction was committed, in microseconds since 1970.

        MySQL's GTID event has the microseconds. With gtid_mode=OFF the kernel does not read them, and on MariaDB the
        event's own time is in seconds: then it is read from the buffer. If that has it no longer, the result is the
        time of the current event, whose statement may have begun long before the commit.
        """
        state = self.state
        if micros := int(state[layout.COMMIT_MICROS]):
            return micros
        at = source.at - int(state[layout.POSITION] - state[layout.COMMITTED])
        if at >= 0 and not state[layout.INNER]:
            seconds, kind, _, size, _, _ = HEADER.unpack(source.data[at : at + HEADER_SIZE].tobytes())
            if kind in OPENING:
                body = source.data[at + HEADER_SIZE : at + size].tobytes()
                anonymous = kind == EventType.ANONYMOUS_GTID
                return commit_micros(EventType.GTID if anonymous else kind, body) or seconds * 1_000_000
        return int(source.header()[0]) * 1_000_000

    def _is_mariadb(self) -> bool:
        return self.description is not None and self.description.is_mariadb

    # --- events that Python handles instead of the kernel

    def _event(self, source: Input) -> tuple[int, bytes]:
        """The size of the current event, and its body: the bytes between header and checksum."""
        size = source.header()[3]
        end = source.at + size - CHECKSUM_SIZE * int(self.state[layout.CHECKSUMS])
        return size, source.data[source.at + HEADER_SIZE : end].tobytes()

    def _skip(self, source: Input, size: int) -> None:
        """Go on to the next event, and count the current event, which has ``size`` bytes."""
        advance(self.state, size)
        source.at += size

    def handle(self, source: Input, code: int) -> Iterator[MessageBlock]:
        if code == layout.NEW_TABLE_MAP:
            self._add_table(source)
            return
        _, kind, _, size, _, flags = source.header()
        if self.state[layout.INNER] and kind not in _ALLOWED_INSIDE and code != layout.REWRITE:
            raise DamagedEvent(f"{name_of(kind)} is not allowed inside a compressed transaction")
        match kind:
            case EventType.QUERY | EventType.EXECUTE_LOAD_QUERY | EventType.MARIADB_QUERY_COMPRESSED:
                yield from self._handle_statement(source, kind)
            case EventType.TRANSACTION_PAYLOAD:
                self._payload_end = int(self.state[layout.POSITION]) + size
                yield from self._decode_inside(source, payload.parts(self._event(source)[1]), 1)
            case EventType.GTID_TAGGED:
                self._open_transaction()
                gtid = read_tagged(self._event(source)[1])
                if gtid is not None:
                    self._texts.set_gtid(gtid)
            case EventType.MARIADB_GTID if self.state[layout.IN_TRANSACTION] != 1:
                self._open_transaction()
                body = self._event(source)[1]
                self._texts.set_gtid(Gtid.parse(gtid_of(kind, source.header()[2], body)))
                self._texts.set_xid(xid_of_gtid(body))
                self.state[layout.IN_TRANSACTION] = 1  # in MariaDB the GTID event begins an XA transaction
                self._accounts.begin_prepared()
            case EventType.XA_PREPARE:
                self._accounts.in_xa = False
                self._hold_prepared(source)
                end_transaction(self.state, self._accounts.runs)
            case EventType.ROWS_QUERY:
                self._texts.set_query(self._event(source)[1][1:])
            case EventType.MARIADB_ANNOTATE_ROWS:
                self._texts.set_query(self._event(source)[1])
            case EventType.FORMAT_DESCRIPTION:
                self._set_description(source.event(size))
            case EventType.INCIDENT:
                raise DamagedEvent(incident_of(self._event(source)[1]))
            case EventType.MARIADB_START_ENCRYPTION if not flags & IGNORABLE_FLAG:
                # If the server sends the file decrypted, the event has this flag.
                raise DamagedEvent(
                    "the file is encrypted (encrypt_binlog), so only the server can read it: read the binlog from the "
                    "server, not from disk"
                )
            case _ if kind in rewrite.TYPES or code == layout.REWRITE:
                yield from self._decode_rewritten(source, kind)
            case EventType.INTVAR | EventType.RAND | EventType.USER_VAR:
                self._inputs.append((kind, self._event(source)[1]))
            case _ if kind in NO_CHANGE or flags & IGNORABLE_FLAG:
                pass
            case EventType.GTID | EventType.ANONYMOUS_GTID | EventType.MARIADB_GTID:
                raise DamagedEvent("a transaction begins inside another transaction")
            case _:
                raise DamagedEvent(unreadable_reason(kind))
        self._skip(source, size)

    def _decode_rewritten(self, source: Input, kind: int) -> Iterator[MessageBlock]:
        """Decompress or complete the current rows event, and decode the plain event instead; yields the full blocks."""
        size, body = self._event(source)
        event = source.event(size)
        if kind in rewrite.COMPRESSED_TYPES:
            plain, inner = rewrite.inflate_event(event, body, kind), max(1, int(self.state[layout.INNER]))
            yield from self._decode_inside(source, [plain], inner)
            return
        table = self._index.table(rewrite.table_id_of(body))
        if table is None:
            raise DamagedEvent(TEXTS[NO_TABLE_MAP])
        words = self._programs.memory.words
        try:
            if words[table + layout.TABLE_CAPTURED] == layout.SKIPPED:
                raise DamagedEvent("the columns of its table are not known")
            images = rewrite.Images(words, table, self._programs.types[table])
            partial = kind == EventType.PARTIAL_UPDATE_ROWS
            plain = images.complete_images(event, body) if partial else images.unpack_values(event, body, kind)
        except DamagedEvent:
            if words[table + layout.TABLE_CAPTURED] == layout.CAPTURED:
                raise
            # A damaged event of a table that is not captured must not stop a run.
            end_statement(self.state, rewrite.flags_of(body))
            return
        yield from self._decode_inside(source, [plain], 2)

    def _handle_statement(self, source: Input, kind: int) -> Iterator[MessageBlock]:
        state = self.state
        query = Query.parse(
            self._event(source)[1],
            compressed=kind == EventType.MARIADB_QUERY_COMPRESSED,
            load=kind == EventType.EXECUTE_LOAD_QUERY,
        )
        step = query.step
        inside = state[layout.IN_TRANSACTION] == 1
        if step is TransactionStep.BEGIN:
            if inside and not self._is_mariadb():
                raise DamagedEvent("a transaction begins inside another transaction")
            state[layout.IN_TRANSACTION] = 1
        elif step is TransactionStep.XA_START:
            state[layout.IN_TRANSACTION] = 1
            self._accounts.begin_prepared()
            self._texts.set_xid(xid_of(query.sql))
        elif step is TransactionStep.COMMIT:
            end_transaction(state, self._accounts.runs)
        elif step in (TransactionStep.SAVEPOINT, TransactionStep.ROLLBACK_TO):
            self._handle_savepoint(source, step, query)
        elif step is None and not query.takes_effect:
            self._inputs.clear()
            if not inside:
                end_transaction(state, self._accounts.runs)
        elif step not in (TransactionStep.RELEASE, TransactionStep.XA_END):
            ends_xa = step in (TransactionStep.XA_COMMIT, TransactionStep.XA_ROLLBACK)
            self._accounts.in_xa &= not ends_xa
            if self._on_statement is not None or ends_xa:  # the caller must first get the rows before the statement
                yield from self._flush()
                yield from self._grouper.finish()
            self._report_statement(source, query)
            if self._prepared is not None and ends_xa:
                yield from self._end_prepared(source, query, self._prepared)
            if step is TransactionStep.ROLLBACK:
                self._transaction_events.add(self._transaction_event(source, RowEffect.ROLLBACK))
                self._drain()
                end_transaction(state, self._accounts.runs)
                self._accounts.drain(self._texts.tagged, rolled_back=True)
            elif not inside:
                end_transaction(state, self._accounts.runs)

    # --- transactions that may be rolled back

    def report(self) -> SliceReport:
        open_since = self.last_commit if self.state[layout.IN_TRANSACTION] == 1 else None
        events = self._transaction_events.report(open_since)
        programs = self._programs
        report = self._accounts.report(self._number, programs.counters, events, open_since, programs.unordered)
        return report if self._prepared is None else self._prepared.complete_report(report)

    def _transaction_event(self, source: Input, effect: RowEffect, name: str = "") -> TransactionEvent:
        position = int(self.state[layout.POSITION])
        end = self._payload_end if self.state[layout.INNER] else position + source.header()[3]
        return TransactionEvent(effect, self.last_commit, position, end, name)

    def _handle_savepoint(self, source: Input, step: TransactionStep, query: Query) -> None:
        effect = RowEffect.SAVEPOINT if step is TransactionStep.SAVEPOINT else RowEffect.ROLLBACK_TO
        self.state[layout.IN_PARTS] |= effect is RowEffect.ROLLBACK_TO
        if effect is RowEffect.ROLLBACK_TO and self.state[layout.INNER]:
            raise DamagedEvent(
                "found ROLLBACK TO inside a compressed transaction: all rows of such a transaction have the same "
                "position, so the rolled back rows cannot be identified"
            )
        self._transaction_events.add(self._transaction_event(source, effect, savepoint_of(query.sql)))

    def _hold_prepared(self, source: Input) -> None:
        xid = prepared_xid(self._event(source)[1])
        if self._prepared is None or xid is None:
            return
        event = self._transaction_event(source, RowEffect.XA_PREPARE)
        try:
            void = self._transaction_events.prepare(event)
        except UnknownSavepoint as error:
            raise DamagedEvent(f"ROLLBACK TO in the transaction that begins at {event.begin}: {error}") from error
        messages = self._take_back(event.begin)
        if messages is None:
            self._transaction_events.add_prepare(event)
        rows = self._accounts.end_prepared(self._programs.counters)
        self._prepared.hold(xid, PreparedTransaction(self.slice.file, event.begin, event.end, void), messages, rows)

    def _end_prepared(self, source: Input, query: Query, prepared: PreparedRows) -> Iterator[MessageBlock]:
        xid = xid_of(query.sql)
        if query.step is TransactionStep.XA_ROLLBACK:
            prepared.forget(xid)
            return
        position, gtid = int(self.state[layout.POSITION]), self._texts.gtid
        committed = self._commit_micros(source)

        def count(rows: CountedRows) -> None:
            self._accounts.add_rows(rows)
            for table in rows.published:
                self._accounts.add_commit(table, committed)

        for (topic, partition), messages in prepared.commit(
            xid, self.slice.file, position, gtid, count, self._finish_messages
        ):
            yield self._grouper.block(topic, partition, messages)

    def _finish_messages(self, messages: Iterable[Routed]) -> Iterable[Routed]:
        if self._finisher is None:
            return messages
        return self._finisher.messages(messages, self._programs.topics)

    def _report_statement(self, source: Input, query: Query) -> None:
        self._accounts.see(source.header()[0])
        position, micros = map(int, self.state[[layout.POSITION, layout.COMMIT_MICROS]])
        statement = query.statement(source.header(), self.slice.file, position, self._texts.gtid, micros, self._inputs)
        self._inputs.clear()
        statement = self._accounts.add_statement(statement)
        self._programs.forget()
        self._index.clear()
        if self._on_statement is not None:
            self._on_statement(statement)

    def _open_transaction(self) -> None:
        state = self.state
        if state[layout.IN_TRANSACTION] == 1:
            raise DamagedEvent("a transaction begins inside another transaction")
        state[layout.IN_TRANSACTION] = 2
        state[layout.GTID_KIND] = 0
        state[layout.GTID_SIZE] = 0
