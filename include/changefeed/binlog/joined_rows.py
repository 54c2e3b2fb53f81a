"""Joins the rows of a binlog event in one message, for formats that need this (`formats.template.joined_rows`).

The kernel writes a message for each row. This module joins the messages of one event and topic-partition. The result
has the event id, the headers and the key of the first message. The messages of an event may be in several blocks, so
the last event of a block is held until the next block, or until it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from changefeed.formats.template import JOINED
from changefeed.records.block import Message

_ALONE = (b"", b"", b"")


@dataclass
class _Event:
    """An event that may be incomplete: its first message, the parts that all of its messages share, and its rows."""

    message: Message
    parts: tuple[bytes, bytes, bytes]
    """The number of the first row, the bytes before the rows, and the bytes after them; `_ALONE` for other messages."""
    rows: list[bytes] = field(default_factory=list)

    def as_message(self) -> Message:
        if self.parts is _ALONE:
            return self.message
        _, head, tail = self.parts
        return replace(self.message, value=b"".join((head, b",".join(self.rows), tail)))


class JoinedRows:
    """Joins the messages of one slice for each topic-partition, which is identified by its group's number."""

    def __init__(self) -> None:
        self._held: dict[int, _Event] = {}

    def take(self, group: int, messages: Iterable[Message]) -> list[Message]:
        """Add the next ``messages`` of a group; returns the joined messages of all events but the last."""
        event = self._held.get(group)
        complete = []
        for message in messages:
            value = message.value or b""
            parts, row = _ALONE, b""
            if value.startswith(JOINED):
                _, first, head, row, tail = value.split(JOINED, 4)
                parts = (first, head, tail)
            if event is None or parts is _ALONE or parts != event.parts or message.position != event.message.position:
                if event is not None:
                    complete.append(event.as_message())
                event = _Event(message, parts)
            event.rows.append(row)
        if event is not None:
            self._held[group] = event
        return complete

    def left(self) -> Iterator[tuple[int, Message]]:
        """Yield the joined message of the held event of each group; call it when no more rows follow."""
        held, self._held = self._held, {}
        for group in sorted(held):
            yield group, held[group].as_message()


def join_messages(messages: Iterable[Message]) -> list[Message]:
    """The ``messages``, joined by event; all events must be complete."""
    rows = JoinedRows()
    return [*rows.take(0, messages), *(message for _, message in rows.left())]
