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
"""The limit, in bytes, for the rows that are held in memory; rows beyond it are read again."""


class PreparedBefore(Protocol):
    """Finds XA transactions that were prepared before a slice, and reads their rows."""

    def find(self, xid: str) -> PreparedTransaction:
        """Where the transaction was prepared; raises BinlogGoneError if the binlog no longer has it."""
        ...

    def rows(self, prepared: PreparedTransaction) -> Iterator[MessageBlock | SliceReport]:
        """Yield the blocks of the rows of ``prepared``, and their report."""
        ...


@dataclass(frozen=True)
class _HeldTransaction:
    prepared: PreparedTransaction
    messages: list[Routed] | None
    rows: CountedRows


class PreparedRows:
    """The XA transactions that a slice has prepared and not yet ended, with their messages.

    ``before`` finds XA transactions of earlier slices; without it their rows are omitted.
    """

    def __init__(self, before: PreparedBefore | None) -> None:
        self._before = before
        self._held: dict[str, _HeldTransaction] = {}
        self._room = HELD_BYTES
        self.ended: set[str] = set()
        """The xids that the slice ends and did not prepare."""

    def hold(self, xid: str, prepared: PreparedTransaction, messages: list[Routed] | None, rows: CountedRows) -> None:
        """Store the ``messages`` of a prepared transaction (None if some were emitted) and its counts ``rows``."""
        size_bytes = _size_of(messages)
        if size_bytes > self._room:
            messages = None
        self._room -= _size_of(messages)
        self._held[xid] = _HeldTransaction(prepared, messages, rows)

    def commit(
        self,
        xid: str,
        file: str,
        position: int,
        gtid: str,
        count: Callable[[CountedRows], None],
        finish: Callable[[Iterable[Routed]], Iterable[Routed]] = lambda messages: messages,
    ) -> Iterator[tuple[tuple[str, int], list[Message]]]:
        """Yield the messages of a transaction that are published at its XA COMMIT at ``position`` of ``file``.

        - The messages get the position of the XA COMMIT, because progress is ordered by position.
        - They get the GTID of the XA COMMIT: a server that has this GTID, such as the source after a failover, has the
          rows.
        - Their ids and values keep the coordinates of the rows. The header COMMIT_HEADER has those of the XA COMMIT.

        If there are many messages, a topic-partition gets several lists, in order. ``count`` is called with the counts
        of the rows; ``finish`` finishes the stored messages.
        """
        held = self.forget(xid)
        prepared = held.prepared if held else self._before.find(xid) if self._before else None
        if prepared is None:
            return
        commit = (COMMIT_HEADER, f"{file}:{position}".encode())
        published: Counter[tuple[str, int]] = Counter()
        for batch in self._batches(prepared, held, count, finish):
            moved: dict[tuple[str, int], list[Message]] = {}
            for where, message in batch:
                if prepared.holds(message.position):
                    sequence = sequence_of(published[where], Step.CHANGE)
                    published[where] += 1
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

    def forget(self, xid: str) -> _HeldTransaction | None:
        """Remove a transaction that ends, and return it; None if the slice did not prepare it."""
        held = self._held.pop(xid, None)
        if held is None:
            self.ended.add(xid)
        else:
            self._room += _size_of(held.messages)
        return held

    @property
    def left(self) -> dict[str, PreparedTransaction]:
        """The prepared transactions that have not ended, by xid."""
        return {xid: held.prepared for xid, held in self._held.items()}

    def complete_report(self, report: SliceReport) -> SliceReport:
        """The slice's ``report`` with two lists of xids: transactions that it left prepared, and that it ended."""
        return replace(report, prepared=tuple(self._held), ended=tuple(sorted(self.ended)))

    def _batches(
        self,
        prepared: PreparedTransaction,
        held: _HeldTransaction | None,
        count: Callable[[CountedRows], None],
        finish: Callable[[Iterable[Routed]], Iterable[Routed]],
    ) -> Iterator[Iterable[Routed]]:
        if held is not None and held.messages is not None:
            count(held.rows)
            yield finish(held.messages)
        elif self._before is not None:
            for item in self._before.rows(prepared):
                if isinstance(item, MessageBlock):
                    where = (item.topic, item.partition)
                    yield ((where, message) for message in item.messages())
                else:
                    count(CountedRows(item.rows, item.filtered, frozenset(item.unordered)))


def _size_of(messages: list[Routed] | None) -> int:
    return sum(500 + len(message.key or b"") + len(message.value or b"") for _, message in messages or ())
