"""What became of a window's unsettled transactions: which of its rows are not published where they stand.

A transaction may be cut into several slices, and its ROLLBACK stand in a later one than its rows, so this is known
when all slices of a window are decoded, and before any of its messages is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from changefeed.errors import BinlogFormatError
from changefeed.model.slice_report import SliceReport
from changefeed.model.transaction_event import (
    BinlogRange,
    Happening,
    Savepoints,
    TransactionEvent,
    UnknownSavepoint,
)
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.records.block_filter import BlockFilter, without


@dataclass(frozen=True)
class Settlement:
    """What is left out of a window's messages.

    ``rolled_back`` are rows that the source does not have. ``prepared`` are rows of XA transactions, which the slice
    with their XA COMMIT brings once more, if there is one; not records of their statements.
    """

    rolled_back: tuple[BinlogRange, ...] = ()
    prepared: tuple[BinlogRange, ...] = ()

    @property
    def filters(self) -> list[BlockFilter]:
        """What leaves their messages out."""
        wanted = (("rolled_back", self.rolled_back), ("prepared", self.prepared))
        return [VoidFilter(reason, ranges) for reason, ranges in wanted if ranges]


class VoidFilter:
    """The `BlockFilter` that leaves out the messages of ``ranges``."""

    def __init__(self, reason: str, ranges: Iterable[BinlogRange]) -> None:
        self._reason = reason
        self._by_file: dict[str, list[BinlogRange]] = {}
        for void in ranges:
            self._by_file.setdefault(void.file, []).append(void)

    @property
    def reason(self) -> str:
        """What it is called in manifests."""
        return self._reason

    def concerns(self, origin: str, first: int, last: int) -> bool:
        """Whether something void stands there."""
        return any(void.start <= last and first < void.end for void in self._by_file.get(origin, ()))

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        """``block`` without what is void."""
        ranges = self._by_file.get(block.origin, ())

        def is_void(message: Message) -> bool:
            return any(void.holds(block.origin, message.position) for void in ranges)

        return without(block, is_void)


def settle(slices: Sequence[Slice], reports: Sequence[SliceReport]) -> Settlement:
    """Join what the ``reports`` of consecutive ``slices`` say.

    Raises BinlogFormatError, with coordinates, for a ROLLBACK TO whose savepoint is nowhere.
    """
    by_number = {report.slice: report for report in reports}
    walk = _Walk()
    for piece in slices:
        walk.take(piece, by_number[piece.number])
    walk.end()
    return Settlement(tuple(walk.rolled_back), tuple(walk.prepared))


def _between_statements(file: str, event: TransactionEvent, report: SliceReport) -> Iterator[BinlogRange]:
    """What ``event`` prepared, without its statements: XA COMMIT brings their records not once more."""
    start = event.begin
    for statement in report.statements:
        if (statement.file == file) and start <= statement.position < event.end:
            yield BinlogRange(file, start, statement.position)
            start = statement.position + 1
    yield BinlogRange(file, start, event.end)


@dataclass
class _Open:
    """A transaction of which no end was seen yet."""

    file: str
    start: int
    savepoints: Savepoints = field(default_factory=Savepoints)


class _Walk:
    def __init__(self) -> None:
        self.rolled_back: list[BinlogRange] = []
        self.prepared: list[BinlogRange] = []
        self._open: _Open | None = None
        self._read_to = 0

    def take(self, piece: Slice, report: SliceReport) -> None:
        if self._open is not None and not piece.gtid:
            if self._open.file == piece.file:
                raise BinlogFormatError(
                    f"binlog {piece.file}:{piece.start}: a slice begins between two transactions, and the one that "
                    f"begins at {self._open.start} is not ended before it. This is a fault of changefeed: report it."
                )
            self.end()  # its file ends inside of it: the server died there, and wrote on in the next file
        for event in report.transaction_events:
            match event.happening:
                case Happening.XA_PREPARE:
                    self.prepared += _between_statements(piece.file, event, report)
                case _:
                    self._frame(piece, event)
        self._read_to = piece.end
        if report.open_since is None:
            self._open = None
        else:
            self._in(piece, report.open_since)

    def end(self) -> None:
        """A transaction that is open now was never ended."""
        if self._open is not None:
            self.rolled_back.append(BinlogRange(self._open.file, self._open.start, self._read_to))
            self._open = None

    def _in(self, piece: Slice, begin: int) -> _Open:
        """The transaction that begins at ``begin`` of the slice: one that is known, or another one."""
        goes_on = bool(piece.gtid) and begin == piece.start
        if self._open is None or not (goes_on or (self._open.file, self._open.start) == (piece.file, begin)):
            self._open = _Open(piece.file, begin)
        return self._open

    def _frame(self, piece: Slice, event: TransactionEvent) -> None:
        transaction = self._in(piece, event.begin)
        if event.happening is Happening.ROLLBACK:
            self.rolled_back.append(BinlogRange(piece.file, transaction.start, event.end))
            self._open = None
            return
        known = len(transaction.savepoints.void)
        try:
            transaction.savepoints.take(event)
        except UnknownSavepoint as error:
            raise BinlogFormatError(
                f"binlog {piece.file}:{event.position}: ROLLBACK TO {event.name!r} takes back the rows of its "
                f"transaction since that savepoint, and from {transaction.start} on {error}: which rows the source "
                "still has is not known. Nothing was published. Compare the table with its topic, and seek the "
                "pipeline behind that transaction."
            ) from error
        self.rolled_back += [BinlogRange(piece.file, start, end) for start, end in transaction.savepoints.void[known:]]
