"""The rows of a binlog event as one message, where the format has all of them in one (`formats.template.joined_rows`).

The kernel writes a message a row. Here those of one event that go to one topic-partition become one: it has the event
id, the headers and the key of the first. An event's messages may come in several blocks, so the last event of a block
is held until the next one, or until nothing more can be of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from changefeed.formats.template import JOINED
from changefeed.records.block import Message

_ALONE = (b"", b"", b"")


@dataclass
class _Event:
    """An event that is not complete: its first message, the parts that all of its messages share, and its rows."""

    message: Message
    parts: tuple[bytes, bytes, bytes]
    """The number of its first row, what is before the rows, and what is after them; of a message that is no row's,
    `_ALONE`."""
    rows: list[bytes] = field(default_factory=list)

    def joined(self) -> Message:
        if self.parts is _ALONE:
            return self.message
        _, head, tail = self.parts
        return replace(self.message, value=b"".join((head, b",".join(self.rows), tail)))


class JoinedRows:
    """Joins the messages of the topic-partitions of one slice, each called by the number of its group."""

    def __init__(self) -> None:
        self._held: dict[int, _Event] = {}

    def take(self, group: int, messages: Iterable[Message]) -> list[Message]:
        """The next ``messages`` of a group; returns those of all events but the last."""
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
                    complete.append(event.joined())
                event = _Event(message, parts)
            event.rows.append(row)
        if event is not None:
            self._held[group] = event
        return complete

    def left(self) -> Iterator[tuple[int, Message]]:
        """The message of the event that is held of each group: it is complete."""
        held, self._held = self._held, {}
        for group in sorted(held):
            yield group, held[group].joined()


def joined_messages(messages: Iterable[Message]) -> list[Message]:
    """``messages`` of complete events, with those of each event joined."""
    rows = JoinedRows()
    return [*rows.take(0, messages), *(message for _, message in rows.left())]
