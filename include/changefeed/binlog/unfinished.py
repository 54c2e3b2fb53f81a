"""Unfinished rows: rows whose messages Python makes.

The kernel writes these rows in the format of a `RowTransformer`, to a separate group that belongs to no topic. Before
messages are collected by topic and partition, the transformer makes messages of these rows, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics
from changefeed.formats.format import RowFormat
from changefeed.records.block import Message

Routed = tuple[tuple[str, int], Message]
"""(topic, partition) and a message."""


class RowTransformer(Protocol):
    """Makes messages of unfinished rows."""

    def row_format(self, database: str, table: str) -> RowFormat | None:
        """The format in which the kernel writes a table's rows; None if the kernel finishes the messages."""
        ...

    def output(self, count: int, output: Output, topics: Topics) -> tuple[int, Output]:
        """Finish the first ``count`` messages of ``output``; returns an output with the new messages, and their number.

        The messages stay in order. ``topics`` has the tables of unfinished groups; the topics of the new messages are
        added to it. The result may be ``output`` itself, changed.
        """
        ...

    def messages(self, unfinished: Iterable[Routed], topics: Topics) -> Iterator[Routed]:
        """Yield the finished messages for ``unfinished``, as `output` does for the messages of an output."""
        ...
