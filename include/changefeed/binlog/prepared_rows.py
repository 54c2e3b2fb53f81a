"""Rows of prepared XA transactions: they are published at their XA COMMIT, and never after an XA ROLLBACK."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from changefeed.binlog.accounts import CountedRows
from changefeed.binlog.unfinished import Routed
from changefeed.model.slice_report import SliceReport
from changefeed.model.transaction_event import PreparedTransaction
from changefeed.records.block import COMMIT_HEADER, Message, MessageBlock, Step, sequence_of

HELD_BYTES = 64 << 20
"""What all that are held at once may take; the rows of others are read again."""


class PreparedBefore(Protocol):
    """Finds XA transactions that were prepared before a slice, and reads their rows."""

    def find(self, xid: str) -> PreparedTransaction:
        """Where the transaction was prepared; raises BinlogGoneError where that is not in the binlog any more."""
        ...

    def rows(self, prepared: PreparedTransaction) -> Iterator[MessageBlock | SliceReport]:
        """The rows of ``prepared`` as they stand there, and the report of them."""
        ...


@dataclass(frozen=True)
class _Held:
    prepared: PreparedTransaction
    messages: list[Routed] | None
    rows: CountedRows


class PreparedRows:
    """The XA transactions that a slice has prepared and not ended, with their messages.

    ``before`` knows those of earlier slices; without it their rows are left out.
    """

    def __init__(self, before: PreparedBefore | None) -> None:
        self._before = before
        self._held: dict[str, _Held] = {}
        self._room = HELD_BYTES
        self.ended: set[str] = set()
        """The xids that were ended and had not been prepared in the slice."""

    def hold(self, xid: str, prepared: PreparedTransaction, messages: list[Routed] | None, rows: CountedRows) -> None:
        """A transaction was prepared. ``messages`` are its own, None where some of them were handed over; ``rows``
        are the counts of its rows."""
        size_bytes = _size_of(messages)
        if size_bytes > self._room:
            messages = None
        self._room -= _size_of(messages)
        self._held[xid] = _Held(prepared, messages, rows)

    def commit(
        self,
        xid: str,
        file: str,
        position: int,
        gtid: str,
        count: Callable[[CountedRows], None],
        finished: Callable[[Iterable[Routed]], Iterable[Routed]] = lambda messages: messages,
    ) -> Iterator[tuple[tuple[str, int], list[Message]]]:
        """The messages of a transaction as they are published at its XA COMMIT at ``position`` of ``file``.

        Progress is ordered by position, so they have the XA COMMIT's; and its GTID, as it is with that transaction
        that the source, and a server after a failover, has the rows. Their ids and values still say where the rows
        stand, and their header COMMIT_HEADER where the XA COMMIT does. Yields several lists for a topic-partition, in
        order, where there are many. ``count`` is called with the counts of its rows, ``finished`` makes messages of
        what was held as the kernel left it.
        """
        held = self.forget(xid)
        prepared = held.prepared if held else self._before.find(xid) if self._before else None
        if prepared is None:
            return
        commit = (COMMIT_HEADER, f"{file}:{position}".encode())
        given: Counter[tuple[str, int]] = Counter()
        for batch in self._batches(prepared, held, count, finished):
            moved: dict[tuple[str, int], list[Message]] = {}
            for where, message in batch:
                if prepared.holds(message.position):
                    sequence = sequence_of(given[where], Step.CHANGE)
                    given[where] += 1
                    moved.setdefault(where, []).append(
                        replace(
                            message,
                            position=position,
                            sequence=sequence,
                            gtid=gtid.encode(),
                            headers=(*message.headers, commit),
                        )
                    )
            yield from moved.items()

    def forget(self, xid: str) -> _Held | None:
        """A transaction is rolled back, or its rows are taken; None where it is none of this slice."""
        held = self._held.pop(xid, None)
        if held is None:
            self.ended.add(xid)
        else:
            self._room += _size_of(held.messages)
        return held

    @property
    def left(self) -> dict[str, PreparedTransaction]:
        """The transactions that are not ended, by xid."""
        return {xid: held.prepared for xid, held in self._held.items()}

    def noted(self, report: SliceReport) -> SliceReport:
        """The slice's ``report`` with the xids of what it left, and of what it ended."""
        return replace(report, prepared=tuple(self._held), ended=tuple(sorted(self.ended)))

    def _batches(
        self,
        prepared: PreparedTransaction,
        held: _Held | None,
        count: Callable[[CountedRows], None],
        finished: Callable[[Iterable[Routed]], Iterable[Routed]],
    ) -> Iterator[Iterable[Routed]]:
        if held is not None and held.messages is not None:
            count(held.rows)
            yield finished(held.messages)
        elif self._before is not None:
            for item in self._before.rows(prepared):
                if isinstance(item, MessageBlock):
                    where = (item.topic, item.partition)
                    yield ((where, message) for message in item.messages())
                else:
                    count(CountedRows(item.rows, item.filtered, frozenset(item.unordered)))


def _size_of(messages: list[Routed] | None) -> int:
    return sum(500 + len(message.key or b"") + len(message.value or b"") for _, message in messages or ())
