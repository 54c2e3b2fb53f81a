"""Runs the kernel over the events of one file or chunk, with its state and texts, and collects messages in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from changefeed.binlog.accounts import Accounts
from changefeed.binlog.commit_infos import CommitInfos
from changefeed.binlog.event_texts import EventTexts
from changefeed.binlog.events.framing import HEADER_SIZE, DamagedEvent, name_of
from changefeed.binlog.events.input import Input
from changefeed.binlog.groups import Buffers, Grouper
from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import NO_TABLE_MAP, TEXTS
from changefeed.binlog.kernel.table_index import TableIndex
from changefeed.binlog.kernel.walk import walk
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.binlog.programs.programs import Programs
from changefeed.binlog.unfinished import Routed, RowTransformer
from changefeed.errors import BinlogFormatError, ChangefeedError
from changefeed.formats.template import NO_SNAPSHOT
from changefeed.model.slice_report import SliceReport
from changefeed.records.block import MessageBlock


class KernelRun(ABC):
    """One run of the kernel, over a slice of a binlog or a chunk of a table's rows.

    - ``origin`` is the file or table to which the positions in blocks refer.
    - ``number`` is the number of the slice or chunk.
    - ``file`` and ``position`` are the coordinates of the first event, as messages name them.
    - ``buffers`` can be used by one run at a time.
    """

    def __init__(
        self,
        programs: Programs,
        buffers: Buffers,
        server_uuid: str,
        *,
        origin: str,
        number: int,
        file: str,
        position: int,
        block_bytes: int,
        finisher: RowTransformer | None = None,
    ) -> None:
        self._finisher = finisher
        self.state = np.zeros(layout.STATE_WORDS, np.int64)
        self.state[layout.POSITION] = self.state[layout.COMMITTED] = position
        self.state[layout.GENERATION] = 1
        self.state[layout.ORDERED] = int(programs.ordered)
        self.state[layout.TRANSACTION_RECORDS] = programs.transaction_records
        self.state[layout.READS] = int(programs.snapshot != NO_SNAPSHOT)
        self.origin, self._number = origin, number
        self._programs = programs
        self._buffers, self._output = buffers, buffers.output
        self._grouper = Grouper(
            programs.topics, buffers.arena, origin, number, block_bytes, joins_rows=programs.joins_rows
        )
        self._scratch = np.zeros(layout.SCRATCH_WORDS, np.int64)
        self._bytes_scratch = np.zeros(2048, np.uint8)
        self._index = TableIndex(self.state)
        self._texts = EventTexts(self.state, programs.notations)
        self._commit_infos = CommitInfos(self.state)
        self._accounts = Accounts(self.state)
        self._flushed_to = -1
        try:
            self._texts.set_origin(server_uuid, origin, file)
        except DamagedEvent as damage:
            raise self.error(str(damage)) from damage

    def run(self, source: Input) -> Iterator[MessageBlock]:
        """Run the kernel over all complete events in ``source``; yields the full blocks."""
        state = self.state
        while True:
            state[layout.AT] = source.at
            state[layout.FILLED] = source.filled
            code = walk(self._workspace(source))
            source.at = int(state[layout.AT])
            if code == layout.MORE:
                return
            if code == layout.ROOM:
                yield from self._make_room()
            elif code == layout.DRAIN:
                self._drain()
            elif code < 0:
                raise self._fault(code, source)
            else:
                try:
                    yield from self.handle(source, code)
                except DamagedEvent as damage:
                    raise self.error(str(damage), source) from damage

    def _workspace(self, source: Input) -> Workspace:
        """The kernel's current arrays. Some arrays are replaced when they grow."""
        memory, output = self._programs.memory, self._output
        if memory.has_commit_infos:
            self._commit_infos.make_room(len(output.positions))
        return Workspace(
            data=source.data,
            state=self.state,
            words=memory.words,
            literals=memory.bytes,
            tables=self._index.words,
            texts=self._texts.bytes,
            query=self._texts.query,
            scratch=self._scratch,
            bytes_scratch=self._bytes_scratch,
            counts=self._accounts.rows,
            orders=self._accounts.orders,
            runs=self._accounts.runs,
            out=output.data,
            positions=output.positions,
            sequences=output.sequences,
            groups=output.groups,
            ends=output.ends,
            seconds=output.seconds,
            commit_infos=self._commit_infos.words,
            nulls=output.nulls,
        )

    @abstractmethod
    def handle(self, source: Input, code: int) -> Iterator[MessageBlock]:
        """Process the current event, which needs Python, and go on to the next; yields the full blocks.

        ``code`` is the kernel's code (see `layout`). Raises DamagedEvent for an event that is not allowed there.
        """

    def finish(self) -> Iterator[MessageBlock | SliceReport]:
        """Yield the remaining blocks, and last the report."""
        yield from self._flush()
        yield from self._grouper.finish()
        self._drain()
        yield self.report()

    def report(self) -> SliceReport:
        """The report of the run."""
        return self._accounts.report(self._number, self._programs.counters)

    def error(self, text: str, source: Input | None = None) -> ChangefeedError:
        """A BinlogFormatError with the position of the current event."""
        where = f"{self.name} {self.origin}:{self.state[layout.POSITION]}"
        if source is not None and source.filled - source.at >= HEADER_SIZE:
            where += f", {name_of(int(source.data[source.at + 4]))}"
        return BinlogFormatError(f"{where}: {text}")

    @property
    @abstractmethod
    def name(self) -> str:
        """The word for the kind of origin, for error messages."""

    def _fault_text(self, code: int) -> str:
        text = TEXTS.get(code, f"fault {code}")
        if code == NO_TABLE_MAP:
            text += f" (table id {self.state[layout.NO_TABLE]})"
        return text

    def _fault(self, code: int, source: Input) -> ChangefeedError:
        """The error of a fault in the current event."""
        return self.error(self._fault_text(code), source)

    def _flush(self) -> Iterator[MessageBlock]:
        """Yield blocks of all messages."""
        self._commit_infos.give_up()
        yield from self._emit(int(self.state[layout.MESSAGES]))

    def _emit(self, count: int) -> Iterator[MessageBlock]:
        """Yield blocks of the first ``count`` messages; the others stay in the buffer."""
        state, output = self.state, self._output
        if count:
            self._flushed_to = int(output.positions[count - 1])
        complete = self._commit_infos.complete_output(count, output) if state[layout.COMMIT_INFOS] else output
        emitted = count
        if self._finisher is not None:
            emitted, complete = self._finisher.output(count, complete, self._programs.topics)
        yield from self._grouper.add(emitted, complete)
        if state[layout.COMMIT_INFOS]:
            self._commit_infos.remove_first(count, int(output.ends[4 * count - 1]) if count else 0)
        left = int(state[layout.MESSAGES]) - count
        state[layout.OUT] = output.keep(count, count + left) if left else 0
        state[layout.MESSAGES] = left

    def _take_back(self, begin: int) -> list[Routed] | None:
        """Remove the messages from position ``begin`` on, and return them with topic and partition.

        Returns None if some of them were emitted already.
        """
        if self._flushed_to >= begin:
            return None
        state, output = self.state, self._output
        first, messages = output.messages_from(int(state[layout.MESSAGES]), begin)
        state[layout.MESSAGES] = first
        state[layout.OUT] = output.ends[4 * first - 1] if first else 0
        self._commit_infos.keep_first(first)
        return [(self._programs.topics.groups[group], message) for group, message in messages]

    def _make_room(self) -> Iterator[MessageBlock]:
        if messages := int(self.state[layout.MESSAGES]):
            if ready := self._commit_infos.ready(messages):
                yield from self._emit(ready)
            elif not self._commit_infos.widen(messages, self._output):
                yield from self._flush()
            return
        try:
            self._output.grow()
        except OverflowError as error:
            raise self.error(str(error)) from error

    def _drain(self) -> None:
        self._accounts.drain(self._texts.tagged)
