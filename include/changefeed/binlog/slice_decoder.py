"""One slice on its way through the kernel: raw events in, finished blocks and the slice's accounts out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from changefeed.binlog.events import payload, rewrite
from changefeed.binlog.events.framing import (
    ARTIFICIAL_FLAG,
    CHECKSUM_SIZE,
    HEADER_SIZE,
    IGNORABLE_FLAG,
    NO_CHANGE,
    DamagedEvent,
    EventType,
    FormatDescription,
    incident_of,
    name_of,
    why_unreadable,
)
from changefeed.binlog.events.gtids import Gtid, gtid_of, read_tagged
from changefeed.binlog.events.input import Input
from changefeed.binlog.events.query_event import Query, TransactionStep, prepared_xid, savepoint_of, xid_of, xid_of_gtid
from changefeed.binlog.groups import Buffers
from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import NO_TABLE_MAP, TEXTS
from changefeed.binlog.kernel.rows_event import end_statement as kernel_end_statement
from changefeed.binlog.kernel.transactions import end_transaction as kernel_end_transaction
from changefeed.binlog.kernel.walk import advance as kernel_advance
from changefeed.binlog.kernel_run import KernelRun
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.binlog.programs.programs import Programs
from changefeed.binlog.unfinished import Routed, RowTransformer
from changefeed.binlog.unsettled import Unsettled
from changefeed.errors import SchemaError
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.transaction_event import Happening, PreparedTransaction, TransactionEvent, UnknownSavepoint
from changefeed.model.window import ANONYMOUS, Slice
from changefeed.native.compiled import python_of
from changefeed.records.block import MessageBlock

_MAY_BE_INSIDE = frozenset(
    {EventType.QUERY, EventType.ROWS_QUERY, EventType.PARTIAL_UPDATE_ROWS, EventType.XA_PREPARE, *rewrite.TYPES}
    | (NO_CHANGE - {EventType.ROTATE})
)

_OF_OUTER = (
    layout.AT, layout.FILLED, layout.LEFT, layout.INNER, layout.CHECKSUMS, layout.EVENT_TYPE, layout.EVENT_SIZE,
)  # fmt: skip
"""The words of the state that events inside of another have of their own."""

advance = python_of(kernel_advance)
end_transaction = python_of(kernel_end_transaction)
end_statement = python_of(kernel_end_statement)


class SliceDecoder(KernelRun):
    """One slice on its way through the kernel."""

    def __init__(
        self,
        piece: Slice,
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
            origin=piece.file,
            number=piece.number,
            file=piece.file,
            position=piece.start,
            block_bytes=block_bytes,
            finisher=finisher,
        )
        self.piece = piece
        self.description: FormatDescription | None = None
        self._on_statement = on_statement
        self._unsettled = Unsettled()
        self._inputs: list[tuple[int, bytes]] = []
        """Of the statement that follows."""
        self._prepared = prepared
        self._payload_end = 0
        self.state[layout.LEFT] = piece.size_bytes
        if piece.gtid not in ("", ANONYMOUS):
            self._texts.set_gtid(Gtid.parse(piece.gtid))
        self.state[layout.IN_TRANSACTION] = self.state[layout.IN_PARTS] = bool(piece.gtid)
        self.state[[layout.COMMIT_MICROS, layout.THREAD]] = piece.commit_micros, piece.thread

    def decode(self, chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[MessageBlock | SliceReport]:
        """See `KernelDecoder.decode`."""
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
        yield from self.finish()

    def _run_inside(self, outer: Input, parts: Iterable[bytes], inner: int) -> Iterator[MessageBlock]:
        """Run events instead of the event at hand in ``outer``: those of a compressed transaction, or the event
        rewritten.

        They share its position, and go on with its row numbers. ``inner`` is 1 for the former, 2 for the latter.
        """
        state = self.state
        kept = {word: int(state[word]) for word in _OF_OUTER}
        _, kind, _, size, _, _ = outer.header()
        if kept[layout.INNER] == 0:
            state[layout.ROW] = 0
            state[layout.EVENT_END] = state[layout.POSITION] + size
        if kind != EventType.TRANSACTION_PAYLOAD and kept[layout.EVENT_TYPE] == 0:
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
            raise DamagedEvent(f"{source.filled - source.at} bytes of a broken event end a compressed event")
        for word, value in kept.items():
            state[word] = value

    @property
    def name(self) -> str:
        """What a file of this kind is called in messages."""
        return "binlog"

    def _fault_text(self, code: int) -> str:
        return super()._fault_text(code) + (" (inside a compressed event)" if self.state[layout.INNER] else "")

    @property
    def committed(self) -> int:
        """Position of the last commit boundary that was reached: what is before it are whole transactions."""
        return int(self.state[layout.COMMITTED])

    # --- the beginning

    def _preamble(self, source: Input) -> bool:
        """Read up to the FORMAT_DESCRIPTION; False while it is not all there."""
        while source.filled - source.at >= HEADER_SIZE:
            _, kind, _, size, _, flags = source.header()
            if kind not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION) or not HEADER_SIZE <= size <= 4096:
                raise self.error(
                    f"{name_of(kind)} of {size} bytes stands where FORMAT_DESCRIPTION should be: this is not a binlog"
                )
            if source.filled - source.at < size:
                return False
            if kind == EventType.ROTATE:
                if not flags & ARTIFICIAL_FLAG:
                    raise self.error("ROTATE stands where FORMAT_DESCRIPTION should be")
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

    # --- table maps

    def _add_table(self, source: Input) -> None:
        programs = self._programs
        size, body = self._event(source)
        try:
            table = programs.of_event(body, is_mariadb=self._is_mariadb())
        except SchemaError as error:
            raise type(error)(f"binlog {self.piece.file}:{self.state[layout.POSITION]}: {error}") from error
        self._accounts.make_room(len(programs.counters))
        self._index.put(rewrite.table_id_of(body), table, programs.memory.place_bytes(body[6:]), len(body) - 6)
        self._pass(source, size)

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

    def handle(self, source: Input, code: int) -> Iterator[MessageBlock]:
        if code == layout.TABLE_WANTED:
            self._add_table(source)
            return
        _, kind, _, size, _, flags = source.header()
        if self.state[layout.INNER] and kind not in _MAY_BE_INSIDE and code != layout.REWRITE:
            raise DamagedEvent(f"{name_of(kind)} stands inside a compressed transaction")
        match kind:
            case EventType.QUERY | EventType.EXECUTE_LOAD_QUERY | EventType.MARIADB_QUERY_COMPRESSED:
                yield from self._statement(source, kind)
            case EventType.TRANSACTION_PAYLOAD:
                self._payload_end = int(self.state[layout.POSITION]) + size
                yield from self._run_inside(source, payload.parts(self._event(source)[1]), 1)
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
                self.state[layout.IN_TRANSACTION] = 1  # of an XA transaction
                self._accounts.begin_prepared()
            case EventType.XA_PREPARE:
                self._accounts.in_xa = False
                self._prepare(source)
                end_transaction(self.state, self._accounts.runs)
            case EventType.ROWS_QUERY:
                self._texts.set_query(self._event(source)[1][1:])
            case EventType.MARIADB_ANNOTATE_ROWS:
                self._texts.set_query(self._event(source)[1])
            case EventType.FORMAT_DESCRIPTION:
                self._describe(source.event(size))
            case EventType.INCIDENT:
                raise DamagedEvent(incident_of(self._event(source)[1]))
            case EventType.MARIADB_START_ENCRYPTION if not flags & IGNORABLE_FLAG:  # a server that decrypts sets it
                raise DamagedEvent(
                    "the file is encrypted (encrypt_binlog): it can be read from the server, not from disk"
                )
            case _ if kind in rewrite.TYPES or code == layout.REWRITE:
                yield from self._rewritten(source, kind)
            case EventType.INTVAR | EventType.RAND | EventType.USER_VAR:
                self._inputs.append((kind, self._event(source)[1]))
            case _ if kind in NO_CHANGE or flags & IGNORABLE_FLAG:
                pass
            case EventType.GTID | EventType.ANONYMOUS_GTID | EventType.MARIADB_GTID:
                raise DamagedEvent("a transaction begins inside another transaction")
            case _:
                raise DamagedEvent(why_unreadable(kind))
        self._pass(source, size)

    def _rewritten(self, source: Input, kind: int) -> Iterator[MessageBlock]:
        """Run the plain event that stands for the rows event at hand."""
        size, body = self._event(source)
        event = source.event(size)
        if kind in rewrite.COMPRESSED_TYPES:
            plain, inner = rewrite.inflated(event, body, kind), max(1, int(self.state[layout.INNER]))
            yield from self._run_inside(source, [plain], inner)
            return
        table = self._index.table(rewrite.table_id_of(body))
        if table is None:
            raise DamagedEvent(TEXTS[NO_TABLE_MAP])
        words = self._programs.memory.words
        try:
            if words[table + layout.TABLE_CAPTURED] == layout.PASSED_OVER:
                raise DamagedEvent("its table's columns are not known")
            images = rewrite.Images(words, table, self._programs.types[table])
            partial = kind == EventType.PARTIAL_UPDATE_ROWS
            plain = images.whole(event, body) if partial else images.unpacked(event, body, kind)
        except DamagedEvent:
            if words[table + layout.TABLE_CAPTURED] == layout.CAPTURED:
                raise
            end_statement(self.state, rewrite.flags_of(body))  # nothing of a table that is left out stops a run
            return
        yield from self._run_inside(source, [plain], 2)

    def _statement(self, source: Input, kind: int) -> Iterator[MessageBlock]:
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
            self._savepoint(source, step, query)
        elif step is None and not query.takes_effect:
            self._inputs.clear()
            if not inside:
                end_transaction(state, self._accounts.runs)
        elif step not in (TransactionStep.RELEASE, TransactionStep.XA_END):
            ends_xa = step in (TransactionStep.XA_COMMIT, TransactionStep.XA_ROLLBACK)
            self._accounts.in_xa &= not ends_xa
            if self._on_statement is not None or ends_xa:  # something of their own stands behind the rows before it
                yield from self._flush()
                yield from self._grouper.finish()
            self._report_statement(source, query)
            if self._prepared is not None and ends_xa:
                yield from self._end_prepared(query, self._prepared)
            if step is TransactionStep.ROLLBACK:
                self._unsettled.add(self._transaction_event(source, Happening.ROLLBACK))
                self._drain()
                end_transaction(state, self._accounts.runs)
                self._accounts.drain(self._texts.tagged, rolled_back=True)
            elif not inside:
                end_transaction(state, self._accounts.runs)

    # --- rows that may be void

    def report(self) -> SliceReport:
        open_since = self.committed if self.state[layout.IN_TRANSACTION] == 1 else None
        events = self._unsettled.report(open_since)
        programs = self._programs
        report = self._accounts.report(self._number, programs.counters, events, open_since, programs.unordered)
        return report if self._prepared is None else self._prepared.noted(report)

    def _transaction_event(self, source: Input, happening: Happening, name: str = "") -> TransactionEvent:
        position = int(self.state[layout.POSITION])
        end = self._payload_end if self.state[layout.INNER] else position + source.header()[3]
        return TransactionEvent(happening, self.committed, position, end, name)

    def _savepoint(self, source: Input, step: TransactionStep, query: Query) -> None:
        happening = Happening.SAVEPOINT if step is TransactionStep.SAVEPOINT else Happening.ROLLBACK_TO
        self.state[layout.IN_PARTS] |= happening is Happening.ROLLBACK_TO
        if happening is Happening.ROLLBACK_TO and self.state[layout.INNER]:
            raise DamagedEvent(
                "ROLLBACK TO stands inside a compressed transaction, whose rows have one position: which of them the "
                "source still has cannot be told"
            )
        self._unsettled.add(self._transaction_event(source, happening, savepoint_of(query.sql)))

    def _prepare(self, source: Input) -> None:
        xid = prepared_xid(self._event(source)[1])
        if self._prepared is None or xid is None:
            return
        event = self._transaction_event(source, Happening.XA_PREPARE)
        try:
            void = self._unsettled.prepare(event)
        except UnknownSavepoint as error:
            raise DamagedEvent(f"ROLLBACK TO in the transaction that begins at {event.begin}: {error}") from error
        messages = self._take_back(event.begin)
        if messages is None:
            self._unsettled.add_prepare(event)
        rows = self._accounts.end_prepared(self._programs.counters)
        self._prepared.hold(xid, PreparedTransaction(self.piece.file, event.begin, event.end, void), messages, rows)

    def _end_prepared(self, query: Query, prepared: PreparedRows) -> Iterator[MessageBlock]:
        xid = xid_of(query.sql)
        if query.step is TransactionStep.XA_ROLLBACK:
            prepared.forget(xid)
            return
        position, gtid = int(self.state[layout.POSITION]), self._texts.gtid
        for (topic, partition), messages in prepared.commit(
            xid, self.piece.file, position, gtid, self._accounts.add_rows, self._finished
        ):
            yield self._grouper.block(topic, partition, messages)

    def _finished(self, messages: Iterable[Routed]) -> Iterable[Routed]:
        if self._finisher is None:
            return messages
        return self._finisher.messages(messages, self._programs.topics)

    def _report_statement(self, source: Input, query: Query) -> None:
        self._accounts.see(source.header()[0])
        position, micros = map(int, self.state[[layout.POSITION, layout.COMMIT_MICROS]])
        statement = query.statement(source.header(), self.piece.file, position, self._texts.gtid, micros, self._inputs)
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
