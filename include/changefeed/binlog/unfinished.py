"""Rows that the kernel leaves unfinished: what the messages of some tables become is made of them in Python.

The kernel writes them in a format that a `RowTransformer` knows, to a group of their own, which is no topic's. Before
messages are collected by topic and partition, the finisher makes them of those rows, in their order: behind it nothing
tells them from others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics
from changefeed.formats.format import RowFormat
from changefeed.records.block import Message

Routed = tuple[tuple[str, int], Message]
"""A message, and before it its topic and partition."""


class RowTransformer(Protocol):
    """Makes messages of unfinished rows."""

    def row_format(self, database: str, table: str) -> RowFormat | None:
        """What the kernel writes the rows of a table in; None for one whose messages it finishes by itself."""
        ...

    def output(self, count: int, output: Output, topics: Topics) -> tuple[int, Output]:
        """The first ``count`` messages of ``output`` with all of them finished, in their order, and their number.

        ``topics`` has the tables of unfinished groups, and gets the topics of the messages that are made. What is
        returned may be ``output`` itself, changed.
        """
        ...

    def messages(self, unfinished: Iterable[Routed], topics: Topics) -> Iterator[Routed]:
        """As `output`, of messages that were taken out of it."""
        ...
