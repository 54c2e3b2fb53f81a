"""The rows of a binlog event as one message, where the format has all of them in one (`formats.template.joined_rows`).

The kernel writes a message a row. Here those of one event that go to one topic-partition become one: it has the event
id, the headers and the key of the first. An event's messages may come in several blocks, so the last event of a block
is held until the next one, or until nothing more can be of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from changefeed.formats.template import JOINED, joined
from changefeed.records.block import Message

_Event = tuple[int, bytes, bytes]
"""An event's position, the number of its first row, and what all of its messages begin with."""


class JoinedRows:
    """Joins the messages of the topic-partitions of one slice, each called by the number of its group."""

    def __init__(self) -> None:
        self._held: dict[int, list[Message]] = {}

    def take(self, group: int, messages: Iterable[Message]) -> list[Message]:
        """The next ``messages`` of a group; returns those of all events but the last."""
        everything = [*self._held.pop(group, ()), *messages]
        events = [list(event) for _, event in groupby(everything, key=_event)]
        self._held[group] = events.pop()
        return [_joined(event) for event in events]

    def left(self) -> Iterator[tuple[int, list[Message]]]:
        """What is held of each group, which is of complete events now."""
        held, self._held = self._held, {}
        for group in sorted(held):
            yield group, [_joined(held[group])]


def joined_messages(messages: Iterable[Message]) -> list[Message]:
    """``messages`` of complete events, with those of each event joined."""
    return [_joined(list(event)) for _, event in groupby(messages, key=_event)]


def _event(message: Message) -> _Event | int:
    value = message.value or b""
    if not value.startswith(JOINED):
        return id(message)  # it is alone
    _, first, head, _ = value.split(JOINED, 3)
    return message.position, first, head


def _joined(event: Sequence[Message]) -> Message:
    return replace(event[0], value=joined([message.value or b"" for message in event])) if event[0].value else event[0]
