"""Resolve the outcomes of a window's transactions: which rows are not published at their position.

A transaction may extend over several slices, and its ROLLBACK may be in a later slice than its rows. So the outcomes
are resolved when all slices of a window are decoded, before any of its messages is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from changefeed.errors import BinlogFormatError
from changefeed.model.slice_report import SliceReport
from changefeed.model.transaction_event import (
    BinlogRange,
    RowEffect,
    Savepoints,
    TransactionEvent,
    UnknownSavepoint,
)
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.records.block_filter import BlockFilter, without


@dataclass(frozen=True)
class TransactionOutcomes:
    """The binlog ranges whose messages are left out of a window.

    ``rolled_back`` are ranges of rows that the source does not have. ``prepared`` are ranges of XA transactions,
    without their statements; the slice with the XA COMMIT, if there is one, publishes their rows.
    """

    rolled_back: tuple[BinlogRange, ...] = ()
    prepared: tuple[BinlogRange, ...] = ()

    @property
    def filters(self) -> list[BlockFilter]:
        """The filters that leave out the messages of the ranges."""
        by_reason = (("rolled_back", self.rolled_back), ("prepared", self.prepared))
        return [VoidFilter(reason, ranges) for reason, ranges in by_reason if ranges]


class VoidFilter:
    """The `BlockFilter` that leaves out the messages of ``ranges``."""

    def __init__(self, reason: str, ranges: Iterable[BinlogRange]) -> None:
        self._reason = reason
        self._by_file: dict[str, list[BinlogRange]] = {}
        for void in ranges:
            self._by_file.setdefault(void.file, []).append(void)

    @property
    def reason(self) -> str:
        """The reason in manifests."""
        return self._reason

    def concerns(self, origin: str, first: int, last: int) -> bool:
        """Whether a range is in file ``origin`` between ``first`` and ``last``."""
        return any(void.start <= last and first < void.end for void in self._by_file.get(origin, ()))

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without the messages of the ranges."""
        ranges = self._by_file.get(block.origin, ())

        def is_void(message: Message) -> bool:
            return any(void.holds(block.origin, message.position) for void in ranges)

        return without(block, is_void)


def resolve_transactions(slices: Sequence[Slice], reports: Sequence[SliceReport]) -> TransactionOutcomes:
    """The outcomes of the transactions in the ``reports`` of consecutive ``slices``.

    Raises BinlogFormatError, with coordinates, for a ROLLBACK TO whose savepoint is unknown.
    """
    by_number = {report.slice: report for report in reports}
    walk = _TransactionWalk()
    for slice in slices:
        walk.add(slice, by_number[slice.number])
    walk.end()
    return TransactionOutcomes(tuple(walk.rolled_back), tuple(walk.prepared))


def _ranges_between_statements(file: str, event: TransactionEvent, report: SliceReport) -> Iterator[BinlogRange]:
    """The ranges of a prepared transaction without its statements, whose records XA COMMIT does not repeat."""
    start = event.begin
    for statement in report.statements:
        if (statement.file == file) and start <= statement.position < event.end:
            yield BinlogRange(file, start, statement.position)
            start = statement.position + 1
    yield BinlogRange(file, start, event.end)


@dataclass
class _OpenTransaction:
    """A transaction whose end has not been read yet."""

    file: str
    start: int
    savepoints: Savepoints = field(default_factory=Savepoints)


class _TransactionWalk:
    def __init__(self) -> None:
        self.rolled_back: list[BinlogRange] = []
        self.prepared: list[BinlogRange] = []
        self._open: _OpenTransaction | None = None
        self._read_to = 0

    def add(self, slice: Slice, report: SliceReport) -> None:
        if self._open is not None and not slice.gtid:
            if self._open.file == slice.file:
                raise BinlogFormatError(
                    f"binlog {slice.file}:{slice.start}: expected the transaction that begins at {self._open.start} to "
                    "end before the slice, which begins between two transactions. This is a fault of changefeed: "
                    "report it."
                )
            self.end()  # its file ends inside of it: the server crashed, and continued in the next file
        for event in report.transaction_events:
            match event.effect:
                case RowEffect.XA_PREPARE:
                    self.prepared += _ranges_between_statements(slice.file, event, report)
                case _:
                    self._apply(slice, event)
        self._read_to = slice.end
        if report.open_since is None:
            self._open = None
        else:
            self._transaction_at(slice, report.open_since)

    def end(self) -> None:
        """End the walk: a transaction that is still open was rolled back."""
        if self._open is not None:
            self.rolled_back.append(BinlogRange(self._open.file, self._open.start, self._read_to))
            self._open = None

    def _transaction_at(self, slice: Slice, begin: int) -> _OpenTransaction:
        """The transaction that begins at ``begin`` of the slice: the open one, or a new one."""
        continues = bool(slice.gtid) and begin == slice.start
        if self._open is None or not (continues or (self._open.file, self._open.start) == (slice.file, begin)):
            self._open = _OpenTransaction(slice.file, begin)
        return self._open

    def _apply(self, slice: Slice, event: TransactionEvent) -> None:
        transaction = self._transaction_at(slice, event.begin)
        if event.effect is RowEffect.ROLLBACK:
            self.rolled_back.append(BinlogRange(slice.file, transaction.start, event.end))
            self._open = None
            return
        known = len(transaction.savepoints.void)
        try:
            transaction.savepoints.take(event)
        except UnknownSavepoint as error:
            raise BinlogFormatError(
                f"binlog {slice.file}:{event.position}: ROLLBACK TO {event.name!r} undoes the rows of its transaction "
                f"since that savepoint, and from {transaction.start} on {error}: which rows the source still has is "
                "not known. Nothing was published. Compare the table with its topic, and seek the pipeline to a "
                "position after that transaction."
            ) from error
        self.rolled_back += [BinlogRange(slice.file, start, end) for start, end in transaction.savepoints.void[known:]]
